"""Fields as columns, and a page of messages as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from headworks._console.app.csv_table import CsvTable
from headworks._console.sources.printable import hex_lines
from headworks._console.sources.shown_message import ShownMessage
from headworks._console.views.message_columns import (
    column_text,
    csv_columns,
    csv_rows,
    read_columns,
)
from headworks.errors import UsageError

pytestmark = pytest.mark.unit


def shown(event: Any, problem: str | None = None) -> ShownMessage:
    return ShownMessage(2, 7, 1_000, "k", (("h", "v"),), 1, 1, 3, event, problem)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_columns_are_chosen_by_boxes_or_in_one_text() -> None:
    assert read_columns(["a", "b.c,a", " d ,"]) == ("a", "b.c", "d")
    assert read_columns([]) == ()
    with pytest.raises(UsageError):
        read_columns([",".join(map(str, range(31)))])
    with pytest.raises(UsageError):
        read_columns(["x" * 301])


@pytest.mark.parametrize(
    ("path", "text"),
    [("a", "1"), ("b.c", "x"), ("l.x", "1, 2"), ("n", "null"), ("b", '{"c": "x"}'), ("gone", "")],
)
def test_a_column_has_the_value_as_text(path: str, text: str) -> None:
    event = {"a": 1, "b": {"c": "x"}, "l": [{"x": 1}, {"x": 2}], "n": None}
    assert column_text(event, path) == text


def test_a_page_as_csv() -> None:
    rows = [shown({"a": 'say "hi", twice'}), shown(None, "it does not decode")]
    names, first, second = read(CsvTable(csv_columns(["a"]), csv_rows(rows, ["a"])).text())
    assert names == ["time", "partition", "offset", "version", "key", "a", "headers", "problem"]
    assert first == [
        "1970-01-01T00:00:01.000+00:00",
        *("2", "7", "3", "k"),
        'say "hi", twice',
        '{"h": "v"}',
        "",
    ]
    assert second[-1] == "it does not decode"
    whole = read(CsvTable(csv_columns([]), csv_rows(rows[:1], [])).text())
    assert whole[1][5] == '{"a": "say \\"hi\\", twice"}'


def test_a_spreadsheet_runs_nothing_that_a_message_says() -> None:
    rows = [shown({"a": '=HYPERLINK("http://evil")', "n": -5})]
    found = read(CsvTable(("a", "n"), [row[5:7] for row in csv_rows(rows, ["a", "n"])]).text())
    assert found[1][0].startswith("'=")
    assert CsvTable(("n",), [(-5,)]).text().splitlines()[1] == "-5"


def test_bytes_in_lines_of_sixteen_up_to_a_bound() -> None:
    lines = hex_lines(b"\x00\x00\x00\x00\x07hello\xff" + b"x" * 10)
    assert lines[0][1].startswith("00 00 00 00 07 68")
    assert lines[0][2] == ".....hello.xxxxx"
    assert lines[1] == (16, "78 78 78 78 78", "xxxxx")
    assert len(hex_lines(b"a" * 100_000)) == 256
