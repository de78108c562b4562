"""Every test module names its kind, and a unit test cannot start a process or connect."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kinds import UnitTestError, kinds_named

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parents[1]


def test_every_module_names_exactly_one_kind() -> None:
    wrong = {
        str(path.relative_to(TESTS)): kinds
        for path in sorted(TESTS.rglob("test_*.py"))
        if len(kinds := kinds_named(path.read_text(encoding="utf-8"))) != 1
    }
    assert not wrong, "name one of the kinds in tests/kinds.py in pytestmark"


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("pytestmark = pytest.mark.unit", ["unit"]),
        ("pytestmark = [pytest.mark.spark, pytest.mark.e2e]", ["e2e"]),
        ("pytestmark = pytest.mark.spark", []),
        ("@pytest.mark.unit\ndef test_x(): ...", []),
    ],
)
def test_the_kind_is_read_from_pytestmark(source: str, kinds: list[str]) -> None:
    assert kinds_named(source) == kinds


def test_a_unit_test_starts_no_process() -> None:
    with pytest.raises(UnitTestError, match="subprocess"):
        subprocess.run([sys.executable, "-c", ""], check=True)


def test_a_unit_test_opens_no_connection() -> None:
    with socket.socket() as opened, pytest.raises(UnitTestError, match="socket"):
        opened.connect(("127.0.0.1", 9))
