"""The short form of `python -m tests.soak damage`: damage is reported, with a fix that works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak import damage

pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("HEADWORKS_TEST_DAMAGE", "25"))


def test_damage_is_never_silent_and_its_fix_gives_back_what_is_intact(tmp_path: Path) -> None:
    report = damage.campaign(tmp_path, CASES, seed=7)
    assert not report.wrong, str(report)
    assert report.endings["repaired"] > CASES // 4
    assert report.endings["served"] > CASES // 8
