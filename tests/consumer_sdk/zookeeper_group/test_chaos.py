"""The short form of `python -m tests.soak membership`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.membership import campaign
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e


def test_a_group_under_attack_loses_nothing_and_owns_nothing_twice(tmp_path: Path) -> None:
    report = campaign(tmp_path, 5 * PATIENCE, 5, attacks=["kill", "pause", "join"])
    assert not report.wrong, str(report)
    assert report.attacks == {"kill": 1, "pause": 1, "join": 1}
    assert report.acknowledged > 100
