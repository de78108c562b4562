"""The messages in quarantine, from the warehouse's files: reasons and places, never values.

Rules:

- Keys and values are not read. A reason may quote a value, so `safe_reason` says what may be shown
  of a topic with sensitive fields.
- The newest days are read first. A page is bounded in rows and files, and says if there are more.
- A file that a load moves meanwhile is left out, and the next look finds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import Any

from hadoop_loader._storage.filesystem import AnyPath, parquet_source, sorted_glob
from headworks._console.sources.loads import open_log

_TABLE = "headworks_quarantine"
_COLUMNS = ["topic", "reason", "schema_id", "_partition", "_offset", "_timestamp", "_load"]
_MAX_ROWS = 5_000
_MAX_FILES = 500
_SAFE_REASONS = re.compile(
    r"schema id \d+ is no version of .*|the datum (ends too early|is nested too deeply)"
    r"|the event time is not in the years 1 to 9999|the message has no value \(a tombstone\)"
)
_HIDDEN_REASON = "the value does not decode"


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A message in quarantine: why, and where it is in its topic."""

    topic: str
    reason: str
    schema_id: int | None
    partition: int
    offset: int
    timestamp_ms: int
    load: int


@dataclass(frozen=True, slots=True)
class QuarantineRows:
    """The newest messages in quarantine; `whole` is False if there are more."""

    rows: tuple[QuarantinedRow, ...]
    whole: bool


def prepare() -> None:
    """Import in a thread what the first page would otherwise wait half a second for."""
    names = "pyarrow.dataset", "pyarrow.parquet"
    Thread(target=lambda: [*map(import_module, names)], name="quarantine", daemon=True).start()


def safe_reason(reason: str) -> str:
    """Return a reason without anything that may come from a value."""
    return reason if _SAFE_REASONS.fullmatch(reason) else _HIDDEN_REASON


def read_quarantine(warehouse: AnyPath, keeps: Callable[[str], bool]) -> QuarantineRows:
    """Return the newest messages in quarantine of the topics that `keeps` accepts."""
    found: list[QuarantinedRow] = []
    files = 0
    for path in _files(warehouse):
        if len(found) >= _MAX_ROWS or files == _MAX_FILES:
            return QuarantineRows(_newest_first(found), whole=False)
        files += 1
        import pyarrow.parquet as pq  # see `prepare`; not if there is no file

        try:
            table = pq.read_table(parquet_source(path), columns=_COLUMNS, partitioning=None)
        except FileNotFoundError:
            continue
        found += [_row(row) for row in table.to_pylist() if keeps(row["topic"])]
    return QuarantineRows(_newest_first(found), whole=True)


def _files(warehouse: AnyPath) -> Iterator[AnyPath]:
    """Yield the files of the quarantine, those of the newest day first."""
    log = open_log(warehouse)
    if log is None:
        return
    days: dict[str, AnyPath] = {
        path.name.partition("=")[2]: path for path in (warehouse / _TABLE).glob("datepartition=*")
    }
    moved = log.layout(log.latest(), _TABLE)
    days |= {day: warehouse / folder for day, folder in moved.items()}
    for _, folder in sorted(days.items(), reverse=True):
        yield from reversed(sorted_glob(folder, "[!._]*.parquet"))


def _row(row: dict[str, Any]) -> QuarantinedRow:
    return QuarantinedRow(
        row["topic"],
        row["reason"],
        row["schema_id"],
        row["_partition"],
        row["_offset"],
        round(row["_timestamp"].timestamp() * 1000),
        row["_load"],
    )


def _newest_first(rows: list[QuarantinedRow]) -> tuple[QuarantinedRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.load, row.topic, row.partition, -row.offset)))
