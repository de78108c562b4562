"""Questions to the store: balances, heatmap, one topic, time to complete, and explanations.

The `audit` commands, the loader's completion marks, and the console use them. Rules:

- Reads only, each question in one transaction. Results are frozen dataclasses of plain values.
- Times are milliseconds since 1970 (UTC). The caller passes `now`.
- The database ranks and pages lists: no question loads every window of every topic into memory.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row, case, func, select

from headworks._audit.balance import Balance, total
from headworks._audit.contributions import merged
from headworks._audit.increments import CountedRange
from headworks._audit.results import (
    SETTLED_MS,
    Completeness,
    Explanation,
    Health,
    HealthRow,
    Holes,
    LoadShare,
    TierLine,
    TierSource,
    TierState,
    TimeToComplete,
    TopicAudit,
    WindowState,
)
from headworks._audit.sql import (
    LOADER_TIER,
    WindowBounds,
    attempted_in,
    drops_in,
    newest_windows,
    percentiles,
    seconds_to_complete,
    states_in,
    time_axis,
)
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit.store.tables import MISSED
from headworks._audit.sums import first_below, topic_sums_in
from headworks._audit_counting import window_of

__all__ = [
    "SETTLED_MS",
    "balances",
    "complete_until",
    "explain",
    "health",
    "holes",
    "loader_lags",
    "sources",
    "tiers",
    "time_to_complete",
    "topic_audit",
    "topic_sums",
    "topics",
]


def topics(store: AuditStore) -> list[str]:
    """Return every topic that a tier has counted, sorted."""
    with store.read() as connection:
        column = tables.topics.c.topic
        return list(connection.scalars(select(column).distinct().order_by(column)))


def balances(
    store: AuditStore,
    tier: str,
    topic: str | None = None,
    *,
    since: int | None = None,
    until: int | None = None,
) -> list[Balance]:
    """Return the balance of `tier` against the producers, by topic and window.

    `since` and `until` bound the windows' starts (until: exclusive). Every row is loaded into
    memory, so ask for one topic or for few windows.
    """
    with store.read() as connection:
        rows = states_in(connection, tier, WindowBounds(since, until, [topic] if topic else None))
        return [row.balance for row in rows]


def topic_sums(
    store: AuditStore,
    tier: str,
    *,
    topic: str | None = None,
    since: int | None = None,
    until: int | None = None,
) -> list[Balance]:
    """Return every topic's balance (or one's) with `tier`, summed over windows, the worst first."""
    bounds = WindowBounds(since, until, [topic] if topic else None)
    with store.read() as connection:
        return topic_sums_in(connection, tier, bounds)


def health(
    store: AuditStore,
    *,
    now: int,
    tier: str = "hadoop",
    windows: int = 36,
    limit: int = 50,
    offset: int = 0,
    containing: str = "",
) -> Health:
    """Return the heatmap: topics by windows, the worst topic first.

    The windows are the newest `windows` of the time axis of the producers and `tier`, oldest first.
    The rows are page `offset`, `limit` of the topics whose name contains `containing`.
    """
    with store.read() as connection:
        starts = time_axis(newest_windows(connection, tier, now, windows), windows)
        if not starts:
            return Health(tier, (), (), 0, total(()), 0)
        since, until = starts[0], starts[-1] + 1
        everything = topic_sums_in(
            connection, tier, WindowBounds(since, until, containing=containing)
        )
        page = everything[offset : offset + limit]
        states = states_in(
            connection, tier, WindowBounds(since, until, [row.topic for row in page])
        )
    by_topic: defaultdict[str, dict[int, WindowState]] = defaultdict(dict)
    for state in states:
        by_topic[state.balance.topic][state.window_start] = state
    return Health(
        tier=tier,
        windows=tuple(starts),
        rows=tuple(
            HealthRow(row, tuple(by_topic[row.topic].get(start) for start in starts))
            for row in page
        ),
        topics=len(everything),
        sum=total(everything),
        bad=sum(1 for row in everything if row.losses or row.duplicated),
    )


def topic_audit(store: AuditStore, topic: str, *, now: int, windows: int = 144) -> TopicAudit:
    """Return one topic's newest `windows` with a line per tier, drops, and time to complete.

    The tiers are those that counted the topic, and the loader's if it counted any topic.
    """
    t = tables.topics.c
    with store.read() as connection:
        starts = time_axis(newest_windows(connection, None, now, windows, topic), windows)
        some = ((t.topic == topic) & (t.tier != PRODUCER_TIER)) | (t.tier == LOADER_TIER)
        names = list(connection.scalars(select(t.tier).where(some).distinct().order_by(t.tier)))
        bounds = (
            WindowBounds(starts[0], starts[-1] + 1, [topic])
            if starts
            else WindowBounds(topics=[topic])
        )
        lines = []
        for tier in names:
            states = states_in(connection, tier, bounds)
            found = {state.window_start: state for state in states}
            took = [
                s.seconds_to_complete
                for s in states
                if s.balance.attempted > s.balance.dropped + s.balance.failed
            ]
            lines.append(
                TierLine(tier, tuple(found.get(s) for s in starts), percentiles(tier, took))
            )
        sent = attempted_in(connection, bounds)
        drops = drops_in(connection, topic, starts)
    return TopicAudit(
        topic=topic,
        windows=tuple(starts),
        attempted=tuple(sent.get(start, 0) for start in starts),
        tiers=tuple(lines),
        drops=drops,
    )


def time_to_complete(
    store: AuditStore,
    tier: str,
    *,
    since: int | None = None,
    until: int | None = None,
) -> TimeToComplete:
    """Return percentiles of the seconds from a window's end until 99.9 % of it was at `tier`."""
    seen, sent = tables.windows.alias("seen"), tables.windows.alias("sent")
    bounds = [sent.c.tier == PRODUCER_TIER, sent.c.attempted > sent.c.failed + sent.c.dropped]
    if since is not None:
        bounds.append(sent.c.window_start >= since)
    if until is not None:
        bounds.append(sent.c.window_start < until)
    same = (
        (seen.c.tier == tier)
        & (seen.c.window_start == sent.c.window_start)
        & (seen.c.topic == sent.c.topic)
    )
    # Whole seconds after the window's start: few rows come back, however many windows there are.
    after = seen.c.complete_at - sent.c.window_start
    question = select(after, func.count()).select_from(sent.outerjoin(seen, same)).where(*bounds)
    with store.read() as connection:
        rows = connection.execute(question.group_by(after)).all()
    return percentiles(
        tier, [one for after, n in rows for one in [seconds_to_complete(0, after)] * n]
    )


def complete_until(
    store: AuditStore,
    topic: str,
    *,
    until: int,
    since: int | None = None,
    tier: str = "hadoop",
    share: float = 0.999,
) -> Completeness:
    """Return how far a topic is complete at a tier: to `until`, or to the first incomplete window.

    It judges the windows that start in [since, until), also one that ends after `until`. The caller
    must know that everything was reported by then.
    """
    bounds = WindowBounds(None if since is None else window_of(since), until, [topic])
    with store.read() as connection:
        counted = connection.scalar(
            select(func.count())
            .select_from(tables.topics)
            .where(tables.topics.c.topic == topic, tables.topics.c.tier == PRODUCER_TIER)
        )
        first = first_below(connection, tier, bounds, share)
        if first is None:
            return Completeness(topic, until, None, bool(counted))
        (state,) = states_in(connection, tier, WindowBounds(first, first + 1, [topic]))
    return Completeness(topic, first, state.balance, bool(counted))


def loader_lags(store: AuditStore) -> dict[str, int]:
    """Return the messages of each topic that the loader has not read, as of the last cut.

    A topic that the loader never read is missing, and so is one whose log is unknown.
    """
    p = tables.log_positions.c
    lag = p.log_end - case((p.loaded > p.log_start, p.loaded), else_=p.log_start)
    sums = select(p.topic, func.sum(case((lag > 0, lag), else_=0))).where(p.log_end.is_not(None))
    with store.read() as connection:
        read = sums.group_by(p.topic).having(func.max(p.loaded).is_not(None))
        rows = connection.execute(read).all()
    return {topic: int(n) for topic, n in rows}


def tiers(store: AuditStore) -> list[TierState]:
    """Return every tier that has ever reported, by name, with its last report."""
    c = tables.sources.c
    question = select(
        c.tier, func.count(), func.min(c.first_sent), func.max(c.last_sent), func.sum(c.unsettled)
    ).group_by(c.tier)
    with store.read() as connection:
        rows = connection.execute(question.order_by(c.tier)).all()
    return [TierState(tier, n, first, last, int(open_)) for tier, n, first, last, open_ in rows]


def sources(store: AuditStore, *, tier: str | None = None) -> list[TierSource]:
    """Return each host and application of each tier, the longest silent first."""
    question = select(tables.sources).order_by(tables.sources.c.last_sent)
    if tier is not None:
        question = question.where(tables.sources.c.tier == tier)
    with store.read() as connection:
        return [
            TierSource(
                r.tier, r.host, r.application, r.first_sent, r.last_sent, r.unsettled, r.lag_ms
            )
            for r in connection.execute(question)
        ]


def explain(store: AuditStore, topic: str, window_start: int) -> Explanation:
    """Return the counts of a topic's window by host and application of every tier, and by load.

    Increments that retention has removed are missing; the sums per tier stay.
    """
    with store.read() as connection:
        name_of = {row.id: row.name for row in connection.execute(select(tables.names))}
        i, n = tables.increments.c, tables.names.c
        number = select(n.id).where(n.name == topic).scalar_subquery()
        rows = connection.execute(
            select(tables.increments)
            .where(i.topic == number, i.window_start == window_start)
            .order_by(i.sent_at)
        ).all()
        # Also tiers that counted nothing in this window: there it may be lost as a whole.
        t = tables.topics.c
        names = set(connection.scalars(select(t.tier).where(t.topic == topic)))
        states = {
            tier: state
            for tier in sorted({*names, LOADER_TIER} - {PRODUCER_TIER})
            for state in states_in(
                connection, tier, WindowBounds(window_start, window_start + 1, [topic])
            )
        }
    return Explanation(topic, window_start, states, merged(rows, name_of), _loads(rows))


def holes(store: AuditStore) -> Holes:
    """Return the audit messages that the sums lack."""
    missed = select(tables.facts.c.value).where(tables.facts.c.name == MISSED)
    with store.read() as connection:
        unreadable = connection.scalar(select(func.count()).select_from(tables.unreadable))
        return Holes(unreadable or 0, int(connection.scalar(missed) or 0))


def _loads(rows: Iterable[Row[Any]]) -> tuple[LoadShare, ...]:
    return tuple(
        LoadShare(
            row.load,
            json.loads(row.counts),
            tuple(CountedRange(*one) for one in json.loads(row.ranges or "[]")),
            row.sent_at,
        )
        for row in rows
        if row.load is not None
    )
