"""The short forms of `python -m tests.soak parser`, `fuzz` and `login`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak.fuzz import fuzz_parser, fuzz_wire
from tests.soak.fuzz_login import fuzz_login

pytestmark = pytest.mark.e2e

SECONDS = float(os.environ.get("HEADWORKS_TEST_FUZZ_SECONDS", "8"))


def test_the_parsers_refuse_nonsense_soon_and_keep_nothing() -> None:
    report = fuzz_parser(SECONDS / 2, seed=5)
    assert not report.wrong, str(report)
    assert report.counts["malformed"] > 10
    assert report.counts["parsed"] > 10


def test_a_broker_under_attack_serves_the_others(tmp_path: Path) -> None:
    report = fuzz_wire(tmp_path, SECONDS, seed=5)
    assert not report.wrong, str(report)


def test_nobody_comes_in_without_a_login_and_nobody_is_kept_from_work(tmp_path: Path) -> None:
    report = fuzz_login(tmp_path, SECONDS, seed=5)
    assert not report.wrong, str(report)
