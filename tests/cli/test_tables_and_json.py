"""How commands print tables and JSON."""

from __future__ import annotations

import json
import shutil
from os import terminal_size

import pytest

from headworks._cli.output import number_of, print_json, print_table

pytestmark = pytest.mark.unit


def test_json_has_no_number_for_nan_and_the_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    infinity = float("inf")
    print_json([{"a": float("nan"), "b": (infinity, -infinity, 1.5)}])

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == [{"a": "NaN", "b": ["Infinity", "-Infinity", 1.5]}]


def test_a_number_and_its_noun_agree() -> None:
    found = [number_of(count, "row") for count in (0, 1, 2, 12_345)]
    assert found == ["0 rows", "1 row", "2 rows", "12,345 rows"]


def test_a_table_fits_a_terminal_and_is_whole_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "t" * 30 + "0123456789" * 15 + "e" * 30
    rows = [[topic, topic, 1_234_567], ["short", "short", 3]]
    print_table(["topic", "table", "rows"], rows)
    assert topic in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: terminal_size((80, 24)))
    print_table(["topic", "table", "rows"], rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 80
    assert lines[2].startswith("tttttttttttttttt")
    assert lines[2].endswith("eee  1,234,567")
    assert lines[2].count("…") == 2
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: terminal_size((10, 24)))
    print_table(["topic", "table", "rows"], rows)
    assert "1,234,567" in capsys.readouterr().out, "numbers are never shortened"
