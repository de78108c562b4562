"""The reconciler's store from the intact rows of a damaged file.

Rules:

- The positions in the audit topic must be intact: what was read without them would count twice.
- A lost sum is made again from its increments if all of them are there. None may be damaged, and
  its window must be younger than the oldest increment that upkeep has left.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, func, select

from headworks._audit.increments import CountedRange, Increment
from headworks._audit.store import tables
from headworks._audit.store.aggregate import StoreChanges, aggregate
from headworks._audit.store.apply import (
    add_counts,
    add_loaded,
    add_sources,
    add_topics,
    update_completion,
)
from headworks._audit.store.database import AuditStore
from headworks._server.checked_sqlite.salvage import SalvagedRows, salvage
from headworks._server.database import sqlite_file
from headworks.errors import UsageError

_SUMS = {
    table.name
    for table in (
        tables.windows,
        tables.outcomes,
        tables.progress,
        tables.topics,
        tables.sources,
        tables.log_positions,
    )
}
_LATE_MS = 3_600_000  # how long before its window a clock that is ahead may report
_BOOKKEEPING = (tables.own.migrations.name,)


def salvage_audit(store: str) -> SalvagedRows:
    """Replace the file of a store by one with its intact rows, and make lost sums again.

    Raises UsageError if the positions in the audit topic are damaged.
    """
    file = sqlite_file(store)

    def make(path: Path) -> None:
        AuditStore(f"sqlite:///{path}").close()

    def mend(path: Path, found: SalvagedRows) -> None:
        needed = (tables.positions.name, tables.names.name)
        lost_sums = _SUMS.intersection(found.damaged_tables)
        if any(name in found.damaged_tables or not found.rows[name] for name in needed) or (
            lost_sums and tables.increments.name in found.damaged_tables
        ):
            raise UsageError(
                f"{file} has lost its positions in the audit topic, the names of topics, or sums"
                " with their increments",
                fix=f"move {file} away, with the files beside it. The reconciler then makes it"
                " again from the audit topic",
            )
        opened = AuditStore(f"sqlite:///{path}")
        with opened.write() as connection:
            add_loaded(connection, _increments(connection))
            complete_from = _complete_from(connection)
            known = (i for i in _increments(connection) if i.window_start >= complete_from)
            sums = aggregate(known)
            if complete_from:
                sums.sources.clear()  # a source's sum is of all its windows
            _add_lost_sums(connection, sums)
        opened.close()

    return salvage(file, make, mend, fresh=_BOOKKEEPING)


def _complete_from(connection: Connection) -> int:
    """Return the first window whose increments are all there."""
    i = tables.increments.c
    first = connection.execute(select(i.number, i.read_at).order_by(i.number).limit(1)).first()
    return 0 if first is None or first.number == 1 else int(first.read_at) + _LATE_MS


def _increments(connection: Connection) -> Iterator[Increment]:
    names = {row.id: row.name for row in connection.execute(select(tables.names))}
    for row in connection.execute(select(tables.increments).order_by(tables.increments.c.number)):
        yield Increment(
            str(UUID(bytes=row.id)),
            names[row.topic],
            names[row.tier],
            row.window_start,
            json.loads(row.counts),
            row.bytes,
            names[row.host],
            names[row.application],
            row.sent_at,
            row.load,
            tuple(CountedRange(*one) for one in json.loads(row.ranges or "[]")),
        )


def _add_lost_sums(connection: Connection, known: StoreChanges) -> None:
    """Add the sums whose rows are lost, and leave all others as they are."""
    w, p = tables.windows.c, tables.progress.c
    add_topics(connection, known)
    there = _keys(connection, w.tier, w.window_start, w.topic)
    windows = {key: change for key, change in known.windows.items() if key not in there}
    o = tables.outcomes.c
    there = _keys(connection, o.topic, o.window_start, o.tier, o.outcome)
    outcomes = Counter({key: n for key, n in known.outcomes.items() if key not in there})
    add_counts(connection, StoreChanges(windows, outcomes, Counter(), {}))
    # Seconds are merged when a window is old, so only those of an incomplete sum are lost.
    said = {
        row[:3]: row[3]
        for row in connection.execute(
            select(p.topic, p.window_start, p.tier, func.sum(p.accounted)).group_by(
                p.topic, p.window_start, p.tier
            )
        )
    }
    accounted = connection.execute(select(w.topic, w.window_start, w.tier, w.accounted)).all()
    short = {tuple(row[:3]) for row in accounted if said.get(tuple(row[:3]), 0) < row[3]}
    there = _keys(connection, p.topic, p.window_start, p.tier, p.second)
    progress = Counter(
        {key: n for key, n in known.progress.items() if key[:3] in short and key not in there}
    )
    add_counts(connection, StoreChanges({}, Counter(), progress, {}))
    s = tables.sources.c
    there = _keys(connection, s.tier, s.host, s.application)
    sources = {key: change for key, change in known.sources.items() if key not in there}
    add_sources(connection, StoreChanges({}, Counter(), Counter(), sources), {})
    update_completion(
        connection,
        {(topic, window) for _, window, topic in windows} | {(key[0], key[1]) for key in progress},
    )


def _keys(connection: Connection, *columns: ColumnElement[Any]) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in connection.execute(select(*columns))}
