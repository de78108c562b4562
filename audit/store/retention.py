"""Retention: old rows are rolled up and later removed, in small transactions.

The hosts that used a schema become one row without a host after `details_ms`. When an application
last used it stays known for `sums_ms`; a use that is removed leaves a hole in the counts.

Rules: the row of an increment is removed after `details_ms`; its share of the sums stays. A later
copy of it would count again. `details_ms` must therefore exceed the time after which a report may
be repeated, by a producer's machine that was down or a load that was not applied. Sums are removed
after `sums_ms`. A process that has ended is removed after a day, and any other after `details_ms`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, tuple_

from headworks._audit.store import tables
from headworks._audit.store.database import AuditStore
from headworks._audit.store.evidence import note_hole
from headworks._audit.store.schema_uses import merge_old_hosts

_MAX_ROWS = 20_000
_MAX_GROUPS = 200
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long increments and sums stay, in milliseconds."""

    details_ms: int = 14 * _DAY_MS
    sums_ms: int = 400 * _DAY_MS


def remove_expired(store: AuditStore, now: int, retention: Retention) -> int:
    """Remove expired rows. Return their number."""
    removed = 0
    for step, before in (
        (_remove_increments, now - retention.details_ms),
        (_roll_up_progress, now - retention.details_ms),
        (_remove_ended, now - _DAY_MS),
        (_remove_processes, now - retention.details_ms),
        (merge_old_hosts, now - retention.details_ms),
        (_remove_sums, now - retention.sums_ms),
    ):
        while True:
            with store.write() as connection:
                gone = step(connection, before)
            removed += gone
            if not gone:
                break
    return removed


def _remove_increments(connection: Connection, before: int) -> int:
    c = tables.increments.c
    oldest = connection.execute(select(c.number, c.read_at).order_by(c.number).limit(1)).first()
    if oldest is None or oldest.read_at >= before:
        return 0
    some = (c.number < oldest.number + _MAX_ROWS) & (c.read_at < before)
    return int(connection.execute(delete(tables.increments).where(some)).rowcount)


def _roll_up_progress(connection: Connection, before: int) -> int:
    """Merge the rows of each window and tier that has not grown since `before`."""
    t = tables.progress
    keys = (t.c.topic, t.c.window_start, t.c.tier)
    last = func.max(t.c.second)
    groups = connection.execute(
        select(*keys, last, func.sum(t.c.accounted), func.count())
        .group_by(*keys)
        .having(func.count() > 1, last < before // 1000)
        .limit(_MAX_GROUPS)
    ).all()
    if not groups:
        return 0
    connection.execute(delete(t).where(tuple_(*keys).in_([tuple(row[:3]) for row in groups])))
    names = ("topic", "window_start", "tier", "second", "accounted")
    rows = [dict(zip(names, (*row[:4], int(row[4])), strict=True)) for row in groups]
    connection.execute(insert(t), rows)
    return sum(row[5] - 1 for row in groups)


def _remove_ended(connection: Connection, before: int) -> int:
    p = tables.processes.c
    old = delete(tables.processes).where(p.ended == 1, p.last_sent < before)
    return int(connection.execute(old).rowcount)


def _remove_processes(connection: Connection, before: int) -> int:
    old = delete(tables.processes).where(tables.processes.c.last_sent < before)
    return int(connection.execute(old).rowcount)


def _remove_sums(connection: Connection, before: int) -> int:
    gone = 0
    w = tables.windows.c
    old = connection.execute(
        select(w.tier, w.window_start, w.topic)
        .where(w.window_start < before, w.last_sent < before)
        .limit(_MAX_GROUPS)
    ).all()
    if old:
        for table in (tables.windows, tables.outcomes, tables.progress):
            key = tuple_(table.c.tier, table.c.window_start, table.c.topic)
            mine = delete(table).where(key.in_([tuple(row) for row in old]))
            gone += int(connection.execute(mine).rowcount)
    for table in (tables.sources, tables.topics, tables.schema_uses):
        removed = int(connection.execute(delete(table).where(table.c.last_sent < before)).rowcount)
        if removed and table is tables.schema_uses:
            note_hole(connection, before)
        gone += removed
    return gone
