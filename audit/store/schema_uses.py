"""The writers and readers of each schema, by topic, tier, application, and host.

Rules:

- A row is a sum of increments and of nothing else. An increment of a tier that does not count by
  schema is a use of NOT_COUNTED, so that "never seen" is told apart from "not counted".
- The time of a use is when its tier reported it, and never the event time: a backfill of old events
  with an old schema is a use of today.
- The number of rows is bounded by the applications, and by the hosts of the last days.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Connection, delete, func, select, tuple_

from headworks._audit.increments import Increment
from headworks._audit.store import tables
from headworks._audit.store.database import AuditStore
from headworks._audit.store.upsert import upsert
from headworks._audit.usage import CountedUse

_MAX_GROUPS = 200
_t = tables.schema_uses.c
_KEYS = (_t.topic, _t.written, _t.read, _t.tier, _t.application)
_Key = tuple[str, int, int, str, str, str]


def add_schema_uses(connection: Connection, new: Iterable[Increment]) -> None:
    """Add the uses of increments, each of which is new."""
    found: dict[_Key, list[int]] = {}
    for one in new:
        who = (one.tier, one.application, one.host)
        if one.schemas is None:
            ids = [(tables.NOT_COUNTED, tables.NOT_COUNTED, 0)]
        else:
            ids = [
                (use.written or 0, tables.NO_READER if use.read is None else use.read, use.messages)
                for use in one.schemas
            ]
        for written, read, messages in ids:
            key = (one.topic, written, read, *who)
            row = found.setdefault(key, [0, one.sent_at, one.sent_at])
            row[0] += messages
            row[1], row[2] = min(row[1], one.sent_at), max(row[2], one.sent_at)
    _merge(connection, found)


def merge_old_hosts(connection: Connection, before: int) -> int:
    """Merge the rows of hosts that last reported before a time. Return how many are gone."""
    old = connection.execute(
        select(*_KEYS, func.sum(_t.messages), func.min(_t.first_sent), func.max(_t.last_sent))
        .where(_t.last_sent < before, _t.host != "")
        .group_by(*_KEYS)
        .limit(_MAX_GROUPS)
    ).all()
    if not old:
        return 0
    keys = [tuple(row[:5]) for row in old]
    mine = (tuple_(*_KEYS).in_(keys), _t.last_sent < before, _t.host != "")
    gone = connection.execute(delete(tables.schema_uses).where(*mine)).rowcount
    found = {(*row[:5], ""): [int(row[5]), row[6], row[7]] for row in old}
    _merge(connection, found)
    return int(gone)


def schema_uses(
    store: AuditStore, topics: Collection[str] | None = None, *, since: int = 0
) -> list[CountedUse]:
    """Return the uses of the schemas of `topics` (None: of all), the newest first.

    A use that was last seen before `since`, in ms since 1970, is left out.
    """
    asked = select(tables.schema_uses).order_by(_t.last_sent.desc(), *_KEYS, _t.host)
    if since:
        asked = asked.where(_t.last_sent >= since)
    if topics is not None:
        asked = asked.where(_t.topic.in_(list(topics)))
    with store.read() as connection:
        return [_use(row) for row in connection.execute(asked)]


def _use(row: Any) -> CountedUse:
    counted = row.written != tables.NOT_COUNTED
    return CountedUse(
        row.topic,
        row.tier,
        row.application,
        row.host,
        counted,
        (row.written or None) if counted else None,
        row.read if row.read >= 0 else None,
        row.messages,
        row.first_sent,
        row.last_sent,
    )


def _merge(connection: Connection, found: dict[_Key, list[int]]) -> None:
    names = ("topic", "written", "read", "tier", "application", "host")
    sums = ("messages", "first_sent", "last_sent")
    rows = [dict(zip((*names, *sums), (*key, *row), strict=True)) for key, row in found.items()]
    upsert(
        connection,
        tables.schema_uses,
        rows,
        added=("messages",),
        least=("first_sent",),
        most=("last_sent",),
    )
