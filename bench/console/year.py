"""A year of an installation of LinkedIn's size, in the reconciler's store.

Each topic has every window of the year, as counted by the producers and by the loader, and the time
at which it was complete. SQLite makes these rows itself. The newest windows are counted by
increments, as from the hosts: each writes to twenty topics. One topic has all hosts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import Index, Table, insert, text

from headworks._audit.increments import CountedSchema, Increment
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.apply import IncrementBatch, apply
from headworks._audit_counting import WINDOW_MS, window_of

_NEWEST = 6  # windows that are counted by increments
_TOPICS_OF_HOST = 20
_EVERYWHERE = 7  # the topic that all hosts write to
_DAY = 86_400_000 // WINDOW_MS
_AT_ONCE = 10 * _DAY  # windows a transaction
_LOAD_MS = 120_000  # from the end of a window until it was loaded

_COLUMNS = """
INSERT INTO audit_windows (tier, window_start, topic, attempted, delivered, failed, dropped,
  unresolved, accounted, quarantined, late, gone, bytes, first_sent, last_sent, complete_at, passed,
  marked)
WITH RECURSIVE w(s) AS (SELECT :first UNION ALL SELECT s + :step FROM w WHERE s + :step < :end)
"""
# In the order of the primary key: the topics by name within each window.
_PRODUCER = """
SELECT 'producer', s, topic, 1000 + s / :step % 500, 1000 + s / :step % 500, 0, 0, 0, 0, 0, 0, 0,
  250000, s + 10000, s + :step, NULL, 1000 + s / :step % 500, 0
FROM w CROSS JOIN audit_topics WHERE tier = 'producer'
"""
_LOADER = """
SELECT 'hadoop', s, topic, 0, 0, 0, 0, 0,
  1000 + s / :step % 500 - 3 * ((substr(topic, 7) + s / :step) % 9973 = 0), 0, 0, 0, 250000,
  s + :load, s + :load, iif((substr(topic, 7) + s / :step) % 9973 = 0, NULL, s + :load), 0, 0
FROM w CROSS JOIN audit_topics WHERE tier = 'hadoop'
"""
_PROGRESS = """
INSERT INTO audit_progress (topic, window_start, tier, second, accounted)
SELECT topic, window_start, tier, (window_start + :load) / 1000, accounted FROM audit_windows
WHERE tier = 'hadoop' ORDER BY topic, window_start
"""


@dataclass(frozen=True, slots=True)
class Year:
    """How large the audit is."""

    topics: int
    hosts: int
    days: int


def fill(file: Path, year: Year, schema_of: Callable[[int], int]) -> None:
    """Make the store. `schema_of` returns the schema id of a topic's number."""
    store = AuditStore(f"sqlite:///{file}")
    now = int(time.time() * 1000)
    newest = window_of(now) - (_NEWEST - 1) * WINDOW_MS
    _fill_windows(store, year, newest)
    start = 0
    for at in range(_NEWEST):
        made = list(_increments(year, newest + at * WINDOW_MS, schema_of))
        batch = IncrementBatch(
            {0: start} if start else {}, {0: start + len(made)}, made, now, False
        )
        apply(store, batch)
        start += len(made)
    store.close()


def _fill_windows(store: AuditStore, year: Year, end: int) -> None:
    by_topic = _index(tables.windows, "audit_windows_by_topic")
    with store.write() as connection:
        by_topic.drop(connection)
        first = end - year.days * _DAY * WINDOW_MS
        row = {"first_sent": first, "last_sent": end}
        rows = [
            {"tier": tier, "topic": f"topic-{number}", **row}
            for tier in ("producer", "hadoop")
            for number in range(year.topics)
        ]
        connection.execute(insert(tables.topics), rows)
    for start in range(first, end, _AT_ONCE * WINDOW_MS):
        some = {"first": start, "end": min(end, start + _AT_ONCE * WINDOW_MS), "step": WINDOW_MS}
        with store.write() as connection:
            connection.execute(text(_COLUMNS + _PRODUCER), some)
            connection.execute(text(_COLUMNS + _LOADER), some | {"load": WINDOW_MS + _LOAD_MS})
    with store.write() as connection:
        by_topic.create(connection)
        connection.execute(text(_PROGRESS), {"load": WINDOW_MS + _LOAD_MS})


def _increments(year: Year, start: int, schema_of: Callable[[int], int]) -> Iterator[Increment]:
    """Yield the counts of one window: of each host and topic, and of the loader."""
    count = min(_TOPICS_OF_HOST, year.topics)
    sums = dict.fromkeys(range(year.topics), 0)
    sent = start + WINDOW_MS
    for host in range(year.hosts):
        mine = {(host * count + step) % year.topics for step in range(count)} | {_EVERYWHERE}
        for number in mine:
            sums[number] += 50
            counts = {"attempted": 50, "delivered": 50}
            yield Increment(
                _id(start, host, number),
                *(f"topic-{number}", "producer", start, counts, 10_000),
                *(f"app{host:04}.example.com", f"service-{host % 40}", sent),
                schemas=(CountedSchema(schema_of(number), None, 50),),
            )
    for number, messages in sums.items():
        if messages:
            yield Increment(
                _id(start, year.hosts, number),
                *(f"topic-{number}", "hadoop", start, {"loaded": messages}, 200 * messages),
                *("loader.example.com", "headworks-loader", sent + _LOAD_MS),
                schemas=(CountedSchema(schema_of(number), schema_of(number), messages),),
            )


def _id(window: int, host: int, topic: int) -> str:
    return str(UUID(int=(window << 64) | (host << 32) | topic, version=5))


def _index(table: Table, name: str) -> Index:
    return next(one for one in table.indexes if one.name == name)
