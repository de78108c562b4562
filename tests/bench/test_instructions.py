"""The comparison of two checkouts by instructions: its table and its verdict."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.instructions import __main__ as instructions

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("here", "code"), [(1029, 0), (1031, 1), (500, 0)])
def test_a_path_may_take_three_percent_more(
    here: int,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def costs(checkout: Path, only: str) -> dict[str, float]:
        assert only == "send"
        return {"send": 1000.0 if checkout == tmp_path else float(here)}

    monkeypatch.setattr(instructions, "costs", costs)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/callgrind_control")
    assert instructions.main([str(tmp_path), "--only", "send"]) == code
    assert f"| send | 1,000 | {here:,} | {here / 1000:.3f} |" in capsys.readouterr().out


def test_without_valgrind_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert instructions.main([str(tmp_path)]) == 2
    assert "valgrind is not installed" in capsys.readouterr().err
