"""A batch of the audit topic into the store: counts and the topic's offsets in one transaction.

Rules:

- A batch is applied to the positions that it was read from, or not at all. If two reconcilers use
  one store, the second one gets a PositionsMovedError and continues from the new positions.
- A batch of another topic than the store's is refused in the same way, also at equal offsets.
- An increment is added once per id: ids are compared within the batch and with the store.
- A heartbeat is no increment: it updates the row of its process, in any order and any number of
  times with the same result.
- An unreadable message is recorded with its position and the reason, and never skipped silently.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, insert, select, tuple_

from headworks._audit.increments import Increment, id_bytes
from headworks._audit.store import tables
from headworks._audit.store.aggregate import PRODUCER_TIER, StoreChanges, aggregate
from headworks._audit.store.database import AuditStore
from headworks._audit.store.evidence import add_missed, forget_unreadable, note_hole
from headworks._audit.store.schema_uses import add_schema_uses
from headworks._audit.store.upsert import upsert
from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.heartbeats import ENDED, RUNNING
from headworks._server.database import PreparedStatement

# Complete is 99.9 %, in whole messages: floating point would be one off now and then.
_COMPLETE_PER_MILLE, _MILLE = 999, 1000
_CHUNK_KEYS = 500
_INSERT = PreparedStatement(
    insert(tables.increments),
    [column.name for column in tables.increments.columns if column.name != "number"],
)
_encode = json.JSONEncoder(separators=(",", ":")).encode
_T = TypeVar("_T")
_TierWindow = tuple[str, int, str]  # topic, window, tier


class PositionsMovedError(Exception):
    """Another reconciler has moved the positions of the store: continue from those."""


@dataclass(frozen=True, slots=True)
class IncrementBatch:
    """Increments, the positions before and after, and the time (`live`: read as written).

    `hole` is the time before which counts are missing, in ms since 1970, and 0 if none are.
    `missed` messages were lost before they were read. `topic_id` is that of the topic with the
    offsets of `start`, and "" if it is not known. `new_topic_id`: `end` belongs to another topic.
    """

    start: Mapping[int, int]
    end: Mapping[int, int]
    increments: Sequence[Increment]
    read_at: int
    live: bool
    unreadable: Mapping[tuple[int, int], str] = field(default_factory=dict)
    hole: int = 0
    missed: int = 0
    topic_id: str = ""
    new_topic_id: str = ""


def positions(connection: Connection) -> dict[int, int]:
    """Return the next offset of each partition of the audit topic."""
    found = connection.execute(select(tables.positions)).all()
    return {row.partition: row.next_offset for row in found}


def topic_id(connection: Connection) -> str:
    """Return the id of the topic that the positions belong to; "" if it was never known."""
    facts = tables.facts.c
    return connection.scalar(select(facts.value).where(facts.name == tables.TOPIC_ID)) or ""


def apply(store: AuditStore, batch: IncrementBatch) -> int:
    """Add a batch. Return the number of new increments. Raises PositionsMovedError."""
    with store.write() as connection:
        known_id = topic_id(connection)
        another = "" not in (known_id, batch.topic_id) and known_id != batch.topic_id
        if another or positions(connection) != dict(batch.start):
            raise PositionsMovedError
        if known_id and batch.new_topic_id not in ("", known_id):
            forget_unreadable(connection)  # the offsets of the new topic begin anew
        counted = [one for one in batch.increments if one.topic != AUDIT_TOPIC]
        new = _without_known(connection, counted)
        _insert(connection, new, batch.read_at)
        changes = aggregate(increment for _, increment in new)
        add_counts(connection, changes)
        add_topics(connection, changes)
        lags = _lags(batch) if batch.live else {}
        add_sources(connection, changes, lags)
        _add_heartbeats(connection, [i for i in batch.increments if i.topic == AUDIT_TOPIC])
        add_loaded(connection, [increment for _, increment in new])
        add_schema_uses(connection, [increment for _, increment in new])
        update_completion(connection, {(topic, window) for _, window, topic in changes.windows})
        _write_unreadable(connection, batch.unreadable)
        note_hole(connection, batch.hole)
        add_missed(connection, batch.missed)
        _save_positions(connection, batch)
    return len(new)


def _without_known(
    connection: Connection, increments: Iterable[Increment]
) -> list[tuple[bytes, Increment]]:
    by_id = {id_bytes(one.id): one for one in increments}
    for known in known_ids(connection, list(by_id)):
        del by_id[known]
    return list(by_id.items())


def known_ids(connection: Connection, ids: Sequence[bytes]) -> set[bytes]:
    """Return the ids, in bytes, of increments that the store has counted and not yet removed."""
    column, found = tables.increments.c.id, set[bytes]()
    for some in _chunks(ids):
        found.update(map(bytes, connection.scalars(select(column).where(column.in_(some)))))
    return found


def _insert(connection: Connection, new: Sequence[tuple[bytes, Increment]], read_at: int) -> None:
    if not new:
        return
    number = _names(
        connection, {n for _, i in new for n in (i.topic, i.tier, i.host, i.application)}
    )
    rows = [
        {
            "id": key,
            "topic": number[one.topic],
            "window_start": one.window_start,
            "tier": number[one.tier],
            "host": number[one.host],
            "application": number[one.application],
            "sent_at": one.sent_at,
            "read_at": read_at,
            "counts": _encode(one.counts),
            "bytes": one.bytes,
            "load": one.commit,
            "ranges": _ranges(one),
        }
        for key, one in new
    ]
    _INSERT.run_each(connection, rows)


def _ranges(one: Increment) -> str | None:
    if not one.ranges:
        return None
    return _encode([[r.partition, r.first, r.end] for r in one.ranges])


def _names(connection: Connection, wanted: set[str]) -> dict[str, int]:
    column = tables.names.c
    known: dict[str, int] = {}
    for some in _chunks(sorted(wanted)):
        for row in connection.execute(select(tables.names).where(column.name.in_(some))):
            known[row.name] = row.id
    missing = sorted(wanted - known.keys())
    if missing:
        last = connection.scalar(select(func.max(column.id))) or 0
        rows = [{"id": last + i, "name": name} for i, name in enumerate(missing, start=1)]
        connection.execute(insert(tables.names), rows)
        known |= {str(row["name"]): last + i for i, row in enumerate(rows, start=1)}
    return known


def add_counts(connection: Connection, changes: StoreChanges) -> None:
    """Add the sums of windows, outcomes, and seconds."""
    upsert(
        connection,
        tables.windows,
        [
            {
                "tier": tier,
                "window_start": window,
                "topic": topic,
                "first_sent": change.first_sent,
                "last_sent": change.last_sent,
                **change.added,
            }
            for (tier, window, topic), change in changes.windows.items()
        ],
        added=tables.COUNTED,
        least=("first_sent",),
        most=("last_sent",),
    )
    upsert(
        connection,
        tables.outcomes,
        _rows(("topic", "window_start", "tier", "outcome", "messages"), changes.outcomes),
        added=("messages",),
    )
    upsert(
        connection,
        tables.progress,
        _rows(("topic", "window_start", "tier", "second", "accounted"), changes.progress),
        added=("accounted",),
    )


def _rows(columns: Sequence[str], sums: Mapping[Any, int]) -> list[dict[str, Any]]:
    return [dict(zip(columns, (*key, n), strict=True)) for key, n in sums.items()]


def add_topics(connection: Connection, changes: StoreChanges) -> None:
    """Note when each tier counted a topic."""
    span: dict[tuple[str, str], tuple[int, int]] = {}
    for (tier, _, topic), change in changes.windows.items():
        first, last = span.get((tier, topic), (change.first_sent, change.last_sent))
        span[tier, topic] = min(first, change.first_sent), max(last, change.last_sent)
    rows = [
        {"tier": tier, "topic": topic, "first_sent": first, "last_sent": last}
        for (tier, topic), (first, last) in span.items()
    ]
    upsert(connection, tables.topics, rows, least=("first_sent",), most=("last_sent",))


def add_loaded(connection: Connection, new: Iterable[Increment]) -> None:
    """Record how far the loader has read each partition: the newest commit says it."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for one in new:
        for part in one.ranges:
            key, told = (one.topic, part.partition), (one.sent_at, part.end)
            found[key] = max(told, found.get(key, told))
    rows = [
        {"topic": topic, "partition": partition, "loaded": end, "loaded_at": at}
        for (topic, partition), (at, end) in found.items()
    ]
    upsert(connection, tables.log_positions, rows, if_later=("loaded_at", ("loaded",)))


def _lags(batch: IncrementBatch) -> dict[tuple[str, str, str], int]:
    """Return the shortest delay from each source's clock to ours, in milliseconds."""
    lags: dict[tuple[str, str, str], int] = {}
    for one in batch.increments:
        who = (one.tier, one.host, one.application)
        lag = batch.read_at - one.sent_at
        lags[who] = min(lag, lags.get(who, lag))
    return lags


def add_sources(
    connection: Connection, changes: StoreChanges, lags: Mapping[tuple[str, str, str], int]
) -> None:
    """Add the unsettled messages of the sources, and note when they reported."""
    rows = [
        {
            "tier": who[0],
            "host": who[1],
            "application": who[2],
            "first_sent": source.first_sent,
            "last_sent": source.last_sent,
            "unsettled": source.unsettled,
            "lag_ms": lags.get(who),
        }
        for who, source in changes.sources.items()
    ]
    upsert(
        connection,
        tables.sources,
        rows,
        added=("unsettled",),
        least=("first_sent",),
        most=("last_sent",),
        newest=("lag_ms",),
    )


def _add_heartbeats(connection: Connection, heartbeats: Iterable[Increment]) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for one in sorted(heartbeats, key=lambda heartbeat: heartbeat.sent_at):
        before = rows.get(one.id, {"every_ms": 0, "ended": 0})
        rows[one.id] = {
            "process": one.id,
            "tier": one.tier,
            "host": one.host,
            "application": one.application,
            "last_sent": one.sent_at,
            "every_ms": max(1000 * one.counts.get(RUNNING, 0), before["every_ms"]),
            "ended": max(int(ENDED in one.counts), before["ended"]),
        }
    most = ("last_sent", "every_ms", "ended")
    upsert(connection, tables.processes, list(rows.values()), most=most)


def update_completion(connection: Connection, touched: set[tuple[str, int]]) -> None:
    """Set the completion time of each tier in the changed windows."""
    c = tables.windows.c
    for keys in _chunks(sorted(touched)):
        rows = connection.execute(
            select(
                c.topic,
                c.window_start,
                c.tier,
                (c.attempted - c.failed - c.dropped).label("expected"),
                c.accounted,
                c.complete_at,
            ).where(tuple_(c.topic, c.window_start).in_(keys))
        ).all()
        expected = {(r.topic, r.window_start): r.expected for r in rows if r.tier == PRODUCER_TIER}
        wanted: dict[_TierWindow, int] = {}
        before: dict[_TierWindow, int | None] = {}
        for row in rows:
            if row.tier == PRODUCER_TIER:
                continue
            key = (row.topic, row.window_start, row.tier)
            before[key] = row.complete_at
            share = _COMPLETE_PER_MILLE * expected.get((row.topic, row.window_start), 0)
            if 0 < share <= row.accounted * _MILLE:
                wanted[key] = -(-share // _MILLE)
        moments = _completion_times(connection, wanted)
        _set_complete(
            connection,
            {key: moments.get(key) for key, old in before.items() if moments.get(key) != old},
        )


def _completion_times(
    connection: Connection, wanted: Mapping[_TierWindow, int]
) -> dict[_TierWindow, int]:
    """Return the first time at which each sum reached the wanted count."""
    p = tables.progress.c
    moments: dict[_TierWindow, int] = {}
    sums: dict[_TierWindow, int] = {}
    for keys in _chunks(sorted(wanted)):
        rows = connection.execute(
            select(tables.progress)
            .where(tuple_(p.topic, p.window_start, p.tier).in_(keys))
            .order_by(p.second)
        )
        for row in rows:
            key = (row.topic, row.window_start, row.tier)
            sums[key] = sums.get(key, 0) + row.accounted
            if key not in moments and sums[key] >= wanted[key]:
                moments[key] = row.second * 1000
    return moments


def _set_complete(connection: Connection, moments: Mapping[_TierWindow, int | None]) -> None:
    c = tables.windows.c
    mine = (
        (c.topic == bindparam("_topic"))
        & (c.window_start == bindparam("_window"))
        & (c.tier == bindparam("_tier"))
    )
    rows = [
        {"_topic": topic, "_window": window, "_tier": tier, "_moment": moment}
        for (topic, window, tier), moment in moments.items()
    ]
    if rows:
        changed = tables.windows.update().where(mine).values(complete_at=bindparam("_moment"))
        connection.execute(changed, rows)


def _write_unreadable(connection: Connection, unreadable: Mapping[tuple[int, int], str]) -> None:
    rows = [
        {"partition": partition, "offset": offset, "reason": reason}
        for (partition, offset), reason in unreadable.items()
    ]
    if rows:
        connection.execute(insert(tables.unreadable), rows)


def _save_positions(connection: Connection, batch: IncrementBatch) -> None:
    connection.execute(delete(tables.positions))
    rows = [{"partition": p, "next_offset": offset} for p, offset in batch.end.items()]
    if rows:
        connection.execute(insert(tables.positions), rows)
    if batch.new_topic_id:
        facts = tables.facts
        connection.execute(delete(facts).where(facts.c.name == tables.TOPIC_ID))
        connection.execute(insert(facts).values(name=tables.TOPIC_ID, value=batch.new_topic_id))


def _chunks(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for i in range(0, len(items), _CHUNK_KEYS):
        yield items[i : i + _CHUNK_KEYS]
