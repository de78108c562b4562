"""Topics whose producers have stopped, and processes that were killed and have no successor.

The producers of a quiet topic counted in nearly every window, and then in none. A vanished process
sends no heartbeats, and nobody has published the counts that it left.

Rules:

- Reads only. Few topics are looked at: those whose producers reported in the last day, and have not
  for a while.
- A topic that rests at the same time every day is not reported, once a day of it is known.
- A process is judged by its own heartbeats, so living ones of its application do not hide it. It is
  reported for a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Select, case, func, select

from headworks._audit.store import AuditStore, tables
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit_counting import WINDOW_MS, window_of

_DAY_MS = 86_400_000
_BUSY_WINDOWS = 18  # three hours
_MIN_BUSY = 17  # of these windows
_CHUNK_TOPICS = 500
_MISSED = 3  # heartbeats in a row


@dataclass(frozen=True, slots=True)
class QuietTopic:
    """A topic that producers counted in `busy` of `windows` up to `last_window`, and not since."""

    topic: str
    busy: int
    windows: int
    last_window: int


@dataclass(frozen=True, slots=True)
class VanishedProcesses:
    """Processes of an application that vanished from a host, and the times of last heartbeats."""

    tier: str
    host: str
    application: str
    processes: int
    first_gone: int
    last_gone: int


def vanished_processes(
    store: AuditStore, now: int, silent_after_ms: int
) -> list[VanishedProcesses]:
    """Return the processes that vanished in the last day, by tier, application, and host."""
    p = tables.processes.c
    who = (p.tier, p.application, p.host)
    missed = (p.last_sent < now - silent_after_ms) & (p.last_sent < now - _MISSED * p.every_ms)
    question = (
        select(*who, func.count(), func.min(p.last_sent), func.max(p.last_sent))
        .where(p.ended == 0, missed, p.last_sent > now - _DAY_MS)
        .group_by(*who)
        .order_by(*who)
    )
    with store.read() as connection:
        rows = connection.execute(question).all()
    return [
        VanishedProcesses(tier, host, application, n, first, last)
        for tier, application, host, n, first, last in rows
    ]


def quiet_topics(store: AuditStore, now: int, silent_after_ms: int) -> Iterator[QuietTopic]:
    """Yield the topics that were busy until some time in the last day, by name."""
    t = tables.topics.c
    resting = select(t.topic).where(
        t.tier == PRODUCER_TIER, t.last_sent < now - silent_after_ms, t.last_sent > now - _DAY_MS
    )
    with store.read() as connection:
        names = sorted(connection.scalars(resting))
        for at in range(0, len(names), _CHUNK_TOPICS):
            counted = connection.execute(_counted(names[at : at + _CHUNK_TOPICS], now))
            for topic, first, last, busy, yesterday in sorted(counted):
                if busy >= _MIN_BUSY and not _rested_yesterday(first, last, yesterday, now):
                    yield QuietTopic(topic, busy, _BUSY_WINDOWS, last)


def _counted(names: list[str], now: int) -> Select[str, int, int, int, int]:
    """Return the question for the first and the last window of each topic in three days.

    It also counts those up to the last one, and those in which it would have rested a day before.
    The database does it all: 400 topics have 170,000 windows.
    """
    w, start = tables.windows.c, tables.windows.c.window_start
    known = (
        w.tier == PRODUCER_TIER,
        w.topic.in_(names),
        start.between(now - 3 * _DAY_MS, now),
        w.attempted > 0,
    )
    ends = select(w.topic, func.min(start).label("first"), func.max(start).label("last"))
    e = ends.where(*known).group_by(w.topic).subquery().c
    busy = start > e.last - _BUSY_WINDOWS * WINDOW_MS
    yesterday = (start >= e.last + WINDOW_MS - _DAY_MS) & (start < window_of(now) - _DAY_MS)
    return (
        select(
            *(w.topic, e.first, e.last),
            func.sum(case((busy, 1), else_=0)),
            func.sum(case((yesterday, 1), else_=0)),
        )
        .where(*known, w.topic == e.topic)
        .group_by(w.topic, e.first, e.last)
    )


def _rested_yesterday(first: int, last: int, yesterday: int, now: int) -> bool:
    """Return whether most windows since `last` were empty a day before as well."""
    if first > last - _DAY_MS:
        return False  # nothing is known of that day
    since = range(last + WINDOW_MS - _DAY_MS, window_of(now) - _DAY_MS, WINDOW_MS)
    return 2 * yesterday < len(since)
