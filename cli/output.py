"""How commands print: data on stdout, status on stderr.

Rules:

- stdout carries only the answer, and exactly one JSON value with `--format json`.
- JSON has no number for NaN and the infinities. They are strings: "NaN", "Infinity", "-Infinity".
- On a terminal, long texts in a table are shortened until its lines fit. Elsewhere they are whole.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

_MIN_SHORTENED_WIDTH = 20  # characters


class Format(StrEnum):
    """The output formats of every command."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for tools")]


def print_json(value: object) -> None:
    """Print one JSON value on stdout."""
    plain = _plain_json(value)
    sys.stdout.write(
        json.dumps(plain, indent=2, ensure_ascii=False, default=str, allow_nan=False) + "\n"
    )
    sys.stdout.flush()


def print_status(text: str) -> None:
    """Print a line for people on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def number_of(count: int, noun: str) -> str:
    """Return a count and its noun, such as "1 row" and "2,000 rows"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows in aligned columns on stdout, with numbers aligned right."""
    cells = [list(header), *[[_cell(value) for value in row] for row in rows]]
    widths = _widths(cells)
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        for i in range(len(header))
    ]
    for number, row in enumerate(cells):
        line = "  ".join(
            text.rjust(width) if right else _shortened(text, width).ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        sys.stdout.write(line.rstrip() + "\n")
        if number == 0:
            sys.stdout.write("  ".join("-" * width for width in widths) + "\n")
    sys.stdout.flush()  # a command that keeps running may write to a file


def print_rows(header: Sequence[str], rows: Sequence[Sequence[object]], format: Format) -> None:
    """Print rows as a table, or as JSON: one object per row."""
    if format is Format.JSON:
        print_json([dict(zip(header, row, strict=True)) for row in rows])
    else:
        print_table(header, rows)


def percent(share: float) -> str:
    """Return a share of 1 as a percentage, rounded down: only 1 is shown as 100.0000%."""
    return f"{math.floor(share * 1_000_000) / 10_000:.4f}%"


def _plain_json(value: object) -> object:
    """Return a value without the floats that JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column; on a terminal, the widest ones give way to its width."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if not sys.stdout.isatty():
        return widths
    excess = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
    while excess > 0 and max(widths, default=0) > _MIN_SHORTENED_WIDTH:
        widths[widths.index(max(widths))] -= 1
        excess -= 1
    return widths


def _shortened(text: str, width: int) -> str:
    """Return a text of at most `width` characters, without its middle if it is longer."""
    if len(text) <= width:
        return text
    head = width // 2
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"


def _cell(value: object) -> str:
    if value is None:
        return "null"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
