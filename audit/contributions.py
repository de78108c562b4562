"""Questions about who counted into a few windows of a topic: hosts and applications, with sums."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, ScalarSelect, select

from headworks._audit.results import Contribution
from headworks._audit.store import AuditStore, tables

_MAX_IDS_PER_QUERY = 500
_i, _n = tables.increments.c, tables.names.c


def contributions(
    store: AuditStore, topic: str, windows: Collection[int]
) -> tuple[Contribution, ...]:
    """Return the counts of some windows of a topic together, by tier, host, and application."""
    with store.read() as connection:
        rows = connection.execute(
            select(tables.increments).where(*_in_windows(topic, windows)).order_by(_i.sent_at)
        ).all()
        name_of = _names_of(connection, rows)
    return merged(rows, name_of)


def applications(
    store: AuditStore, topic: str, windows: Collection[int], tier: str
) -> tuple[str, ...]:
    """Return the applications that counted into some windows of a topic at a tier, sorted."""
    asked = (
        select(_n.name)
        .distinct()
        .join(tables.increments, _i.application == _n.id)
        .where(*_in_windows(topic, windows), _i.tier == _number_of(tier))
    )
    with store.read() as connection:
        return tuple(sorted(connection.scalars(asked)))


def _in_windows(topic: str, windows: Collection[int]) -> tuple[ColumnElement[bool], ...]:
    return _i.topic == _number_of(topic), _i.window_start.in_(list(windows))


def _number_of(name: str) -> ScalarSelect[int]:
    return select(_n.id).where(_n.name == name).scalar_subquery()


def _names_of(connection: Connection, rows: Iterable[Row[Any]]) -> dict[int, str]:
    """Return the names in rows by id; the store may have those of all hosts of years."""
    ids = sorted({one for row in rows for one in (row.tier, row.host, row.application)})
    found: dict[int, str] = {}
    for start in range(0, len(ids), _MAX_IDS_PER_QUERY):
        some = ids[start : start + _MAX_IDS_PER_QUERY]
        found |= {
            r.id: r.name for r in connection.execute(select(tables.names).where(_n.id.in_(some)))
        }
    return found


def merged(rows: Iterable[Row[Any]], name_of: Mapping[int, str]) -> tuple[Contribution, ...]:
    """Return the counts of rows, oldest first, by tier, host, and application."""
    grouped: defaultdict[tuple[str, str, str], list[Row[Any]]] = defaultdict(list)
    for row in rows:
        who = (name_of[row.tier], name_of[row.host], name_of[row.application])
        grouped[who].append(row)
    found = []
    for (tier, host, application), some in sorted(grouped.items()):
        counts: dict[str, int] = {}
        for row in some:
            for name, n in json.loads(row.counts).items():
                counts[name] = counts.get(name, 0) + n
        size = sum(row.bytes for row in some)
        first, last = some[0].sent_at, some[-1].sent_at
        found.append(Contribution(tier, host, application, counts, size, len(some), first, last))
    return tuple(found)
