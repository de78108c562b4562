"""The order in which workers get the test modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lengths import lengths, measured

pytestmark = pytest.mark.unit


def test_every_module_of_the_table_exists(root: Path) -> None:
    assert not [module for module in lengths() if not (root / module).is_file()]


def test_the_longest_is_the_first() -> None:
    seconds = list(lengths().values())
    assert seconds
    assert seconds == sorted(seconds, reverse=True)


def test_a_report_is_summed_up_by_module() -> None:
    report = """<testsuites><testsuite>
        <testcase classname="tests.a.test_long" name="test_1" time="4.1"/>
        <testcase classname="tests.a.test_long" name="test_2[x]" time="3.2"/>
        <testcase classname="tests.a.test_longer" name="test_1" time="60"/>
        <testcase classname="tests.a.test_short" name="test_1" time="4.9"/>
    </testsuite></testsuites>"""
    assert measured(report) == {"tests/a/test_longer.py": 60, "tests/a/test_long.py": 7}
