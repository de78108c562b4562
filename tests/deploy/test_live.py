"""A running installation under the shipped alert rules: the short forms of two long proofs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import alarms, healthy
from tests.tools import needs

pytestmark = [pytest.mark.e2e, needs("prometheus")]


def test_a_healthy_installation_is_not_red(tmp_path: Path) -> None:
    report = healthy.watch(tmp_path, 12.0, 20_261_123, loads=False)
    assert not report.wrong, report
    assert report.looks > 1
    assert report.groups["ok"] > 0
    assert report.messages > 0


@pytest.mark.timeout(900)  # an alert that stays out is waited for, and reported
def test_rules_fire_for_troubles_that_are_caused(tmp_path: Path) -> None:
    report = alarms.campaign(tmp_path, alarms.QUICK)
    assert not report.wrong, report
    assert len(report.fired) == 8
