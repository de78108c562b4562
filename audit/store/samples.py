"""Samples of log end offsets and group lags over time, for charts.

Rules:

- Bounded: 2,000 series, each with 3 hours of minutes and 9 days of ten minutes. Series beyond that,
  those that sort last by kind and name, are not kept.
- A slot has its last sample, and None if there was none. A gap is never filled.
- Many samples share a row, because a store is checked row by row when it is opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, insert, select, tuple_

from headworks._audit.store import tables
from headworks._audit.store.database import AuditStore

MAX_SERIES = 2_000
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_FINE_MS = 180 * _MINUTE_MS
_CHUNK_KEYS = 200


class SampleKind(StrEnum):
    """The kind of a sample; those that a full store keeps come first."""

    GROUP_AGE = "group age"  # of the oldest unread message, in milliseconds
    GROUP_LAG = "group lag"  # in messages
    LOG_END = "log end"  # the sum of a topic's log end offsets


@dataclass(frozen=True, slots=True)
class SampleSeries:
    """Samples at `start`, `start + step_ms`, ..; None: there is none."""

    start: int
    step_ms: int
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class _Resolution:
    step_ms: int
    slots: int  # in a row
    keep_ms: int

    def row_start(self, at: int) -> int:
        return at // (self.step_ms * self.slots) * self.step_ms * self.slots


_RESOLUTIONS = (
    _Resolution(_MINUTE_MS, 60, _FINE_MS),
    _Resolution(10 * _MINUTE_MS, 144, 9 * _DAY_MS),
)
SeriesKey = tuple[SampleKind, str]


def add_samples(store: AuditStore, at: int, found: Mapping[SeriesKey, float]) -> None:
    """Add one sample to each series, and remove expired ones. `at` is in ms since 1970."""
    kept = {key: found[key] for key in sorted(found)[:MAX_SERIES]}
    with store.write() as connection:
        for one in _RESOLUTIONS:
            _add(connection, one, at, kept)
            s = tables.samples.c
            old = (s.step_ms == one.step_ms) & (s.start < one.row_start(at - one.keep_ms))
            connection.execute(delete(tables.samples).where(old))


def _add(
    connection: Connection, one: _Resolution, at: int, found: Mapping[SeriesKey, float]
) -> None:
    s = tables.samples.c
    start = one.row_start(at)
    slot = (at - start) // one.step_ms
    here = (s.step_ms == one.step_ms) & (s.start == start)
    known = {
        (row.kind, row.name): json.loads(row.values)
        for row in connection.execute(select(s.kind, s.name, s["values"]).where(here))
    }
    rows: list[dict[str, Any]] = []
    for (kind, name), value in found.items():
        values = known.get((kind, name)) or [None] * one.slots
        values[slot] = value
        key = {"kind": str(kind), "name": name, "step_ms": one.step_ms, "start": start}
        rows.append({**key, "values": json.dumps(values, separators=(",", ":"))})
    for first in range(0, len(rows), _CHUNK_KEYS):
        some = rows[first : first + _CHUNK_KEYS]
        keys = [(row["kind"], row["name"]) for row in some]
        connection.execute(delete(tables.samples).where(here, tuple_(s.kind, s.name).in_(keys)))
        connection.execute(insert(tables.samples), some)


def read_samples(
    store: AuditStore, kind: SampleKind, name: str, *, since: int, until: int, now: int
) -> SampleSeries:
    """Return a series between two times: by ten minutes, or by minutes within the last 3 hours."""
    fine = until - since <= _FINE_MS and since >= now - _FINE_MS
    one = _RESOLUTIONS[0 if fine else 1]
    first = since // one.step_ms * one.step_ms
    values: list[float | None] = [None] * max(0, -(-(until - first) // one.step_ms))
    s = tables.samples.c
    wanted = select(s.start, s["values"]).where(
        s.kind == str(kind),
        s.name == name,
        s.step_ms == one.step_ms,
        s.start.between(one.row_start(first), until),
    )
    with store.read() as connection:
        for start, text in connection.execute(wanted):
            for slot, value in enumerate(json.loads(text)):
                at = (start + slot * one.step_ms - first) // one.step_ms
                if 0 <= at < len(values):
                    values[at] = value
    return SampleSeries(first, one.step_ms, tuple(values))
