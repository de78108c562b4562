"""The short form of `python -m tests.soak usage`: no version in use is unknown or called unused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import usage

pytestmark = pytest.mark.e2e


def test_every_version_in_use_is_known_and_none_is_called_unused(tmp_path: Path) -> None:
    report = usage.campaign(tmp_path, seconds=0, seed=23)
    print(report)
    assert not report.wrong, report.wrong
    assert len(report.events) == 7
    assert report.allowed > 0
    assert report.uses >= 8
    assert report.longest_ms < usage.KNOWN_WITHIN_MS
