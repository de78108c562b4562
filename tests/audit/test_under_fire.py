"""The short form of `python -m tests.soak audit`: each message, by name, in the right state."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadoop_loader._operations.verify import count_rows
from headworks.errors import CorruptError
from tests.soak import fire

pytestmark = pytest.mark.e2e


def test_the_audit_agrees_with_an_external_ledger(tmp_path: Path) -> None:
    report = fire.campaign(tmp_path, seconds=2, seed=20_261_121, rest=0.8)
    print(report)
    assert not report.wrong, report.wrong
    assert report.doubled > 0
    assert report.lost > 0
    assert all(report.states[state] for state in ("dropped", "quarantined", "surplus", "lost"))
    assert report.events["producer killed for good"] > 0
    rows = count_rows(tmp_path / "warehouse")
    assert {row.topic for row in rows} >= {
        "fire.killed", "fire.cut", "fire.doubled", "fire.mirrored", "fire.gone",
    }  # fmt: skip
    assert all(row.in_files == row.in_commits > 0 for row in rows)
    assert sum(report.events.values()) >= 10
    every = sorted((tmp_path / "warehouse" / "_headworks" / "commits").glob("*.json"))
    first, second = every[0], every[1]
    text = first.read_text()
    first.write_text(text.replace('"rows":', '"rows":1', 1))
    with pytest.raises(CorruptError, match="is not what the loader wrote"):
        count_rows(tmp_path / "warehouse")
    first.write_text(text)
    second.unlink()
    with pytest.raises(CorruptError, match="does not follow 1"):
        count_rows(tmp_path / "warehouse")
