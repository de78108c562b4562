"""Cuts: which counted messages the loader has passed in the log, and which may still come.

A message that a producer counted as delivered was in the log when its count was read. So, if the
ends of the logs are asked for after the counts were read, everything counted lies before them. Once
the loader's offsets have reached these ends, every such message is at the tier, or it is lost.

Rules:

- A cut compares offsets, never clocks.
- The counts of a cut are those of the store before the ends were asked for. If the store has
  changed since, the cut is not taken, and the next one is.
- A topic with a partition whose bounds are unknown gets no cut. A topic that no longer exists is
  passed: nothing can come from it.
- A load is believed a few seconds after its commit, when all its counts are published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, update

from headworks._audit.store import tables
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit.store.database import AuditStore
from headworks._audit.store.upsert import upsert

PUBLISHED_AFTER_MS = 5_000
LogBounds = tuple[int, int]  # the log start offset and the log end offset
# Returns the bounds by topic and partition. A topic that does not exist has none, and a topic with
# an unknown partition is missing.
AskBounds = Callable[[Collection[str]], Mapping[str, Mapping[int, LogBounds]]]

_w, _p = tables.windows.c, tables.log_positions.c
_open = (_w.tier == PRODUCER_TIER) & tables.NOT_PASSED


@dataclass(frozen=True, slots=True)
class _Partition:
    loaded: int | None
    loaded_at: int | None
    marked: int | None


def take_cut(store: AuditStore, ask: AskBounds, now: int) -> bool:
    """Take a cut of every topic with messages that may still come. Return whether it was taken."""
    revision = store.revision()
    with store.read() as connection:
        topics = set(connection.scalars(select(_w.topic).where(_open).distinct()))
        known = _partitions(connection, topics)
    if not topics:
        return True
    bounds = ask(topics)
    with store.write() as connection:
        # The writer's own transaction has raised the revision by one.
        if connection.scalar(select(tables.own.state.c.revision)) != revision + 1:
            return False
        for topic, partitions in sorted(bounds.items()):
            _cut(connection, topic, partitions, known.get(topic, {}), now)
    return True


def unpublished_until(store: AuditStore) -> int:
    """Return the time from which the newest load in the store is believed, in ms; 0 without one."""
    with store.read() as connection:
        newest = connection.scalar(select(func.max(_p.loaded_at)))
    return 0 if newest is None else int(newest) + PUBLISHED_AFTER_MS


def _partitions(connection: Connection, topics: set[str]) -> dict[str, dict[int, _Partition]]:
    found: defaultdict[str, dict[int, _Partition]] = defaultdict(dict)
    for row in connection.execute(select(tables.log_positions)):
        if row.topic in topics:
            found[row.topic][row.partition] = _Partition(row.loaded, row.loaded_at, row.marked)
    return found


def _cut(
    connection: Connection,
    topic: str,
    bounds: Mapping[int, LogBounds],
    known: Mapping[int, _Partition],
    now: int,
) -> None:
    reached = {
        partition: _reached(known.get(partition), start, end, now)
        for partition, (start, end) in bounds.items()
    }
    marks = {partition: one.marked for partition, one in known.items() if one.marked is not None}
    of_topic = _open & (_w.topic == topic)
    passed = all(reached.get(p, mark) >= mark for p, mark in marks.items())
    if marks and passed:
        connection.execute(update(tables.windows).where(of_topic).values(passed=_w.marked))
    if not marks or passed:
        connection.execute(
            update(tables.windows).where(of_topic).values(marked=_w.delivered + _w.unresolved)
        )
        marks = {partition: end for partition, (_, end) in bounds.items()}
        if all(reached[p] >= mark for p, mark in marks.items()):
            connection.execute(update(tables.windows).where(of_topic).values(passed=_w.marked))
            marks = {}
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "log_start": bounds[partition][0] if partition in bounds else None,
            "log_end": bounds[partition][1] if partition in bounds else None,
            "marked": marks.get(partition),
        }
        for partition in sorted({*bounds, *known})
    ]
    upsert(connection, tables.log_positions, rows, replaced=("log_start", "log_end", "marked"))


def _reached(one: _Partition | None, start: int, end: int, now: int) -> int:
    """Return the offset up to which the loader has read a partition, or retention removed it."""
    if one is None or one.loaded is None or one.loaded_at is None:
        return start
    # A log that ends before the loader's offset was made again, and nothing of it was read.
    if one.loaded > end or now < one.loaded_at + PUBLISHED_AFTER_MS:
        return start
    return max(start, one.loaded)
