"""How commands print: data on stdout, status on stderr.

Rules: stdout carries only the answer, and exactly one JSON value with `--format json`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Format", "FormatOption", "percent", "print_json", "print_status", "print_table"]


class Format(StrEnum):
    """The output formats of every command."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for tools")]


def print_json(value: object) -> None:
    """Print one JSON value on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def print_status(text: str) -> None:
    """Print a line for people on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows in aligned columns on stdout, with numbers aligned right."""
    cells = [list(header), *[[_cell(value) for value in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        for i in range(len(header))
    ]
    for number, row in enumerate(cells):
        line = "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        sys.stdout.write(line.rstrip() + "\n")
        if number == 0:
            sys.stdout.write("  ".join("-" * width for width in widths) + "\n")


def percent(share: float) -> str:
    """Return a share of 1 as a percentage, rounded down: only 1 is shown as 100.0000%."""
    return f"{math.floor(share * 1_000_000) / 10_000:.4f}%"


def _cell(value: object) -> str:
    if value is None:
        return "null"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
