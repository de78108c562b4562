"""A table as CSV (RFC 4180), for spreadsheets.

Rule: a text that a spreadsheet would take for a formula begins with an apostrophe. Messages are
written by others, and opening them must run nothing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class CsvTable:
    """The names of the columns, and the rows; None is an empty cell."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]

    def text(self) -> str:
        """Return the table as CSV, with a line of names first."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow([_safe(name) for name in self.columns])
        writer.writerows([_safe(cell) for cell in row] for row in self.rows)
        return out.getvalue()


def _safe(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
