"""The statements under `audit.queries`: rows of the store to balances, in one transaction.

Rules: a sum over topics or windows is the database's work; what comes back is small. The
producers have no `accounted` and the tiers no `attempted`, so one sum of both rows of a window
keeps them apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, select

from audit.answers import TimeToComplete, WindowState
from audit.balance import Balance, allowed_of, balance_of
from audit.store import tables
from audit.store.fold import PRODUCER_TIER
from headworks.audit import WINDOW_MS

__all__ = [
    "Breach",
    "attempted_in",
    "breaches_in",
    "drops_in",
    "newest_windows",
    "percentiles",
    "states_in",
    "topic_sums_in",
    "waited",
    "within",
]

_w = tables.windows.c
_SUMMED = tables.COUNTED
_AHEAD_MS = 3_600_000  # windows further in the future are somebody's broken clock


def within(since: int | None, until: int | None) -> list[ColumnElement[bool]]:
    """Windows whose start is in [since, until)."""
    bounds: list[ColumnElement[bool]] = []
    if since is not None:
        bounds.append(_w.window_start >= since)
    if until is not None:
        bounds.append(_w.window_start < until)
    return bounds


def newest_windows(
    connection: Connection, tier: str | None, now: int, count: int, topic: str | None = None
) -> list[int]:
    """The starts of the newest windows that hold anything, oldest first."""
    question = select(_w.window_start).where(_w.window_start <= now + _AHEAD_MS).distinct()
    if tier is not None:
        question = question.where(_w.tier.in_((PRODUCER_TIER, tier)))
    if topic is not None:
        question = question.where(_w.topic == topic)
    newest = connection.scalars(question.order_by(_w.window_start.desc()).limit(count))
    return sorted(newest)


def states_in(
    connection: Connection,
    tier: str,
    bounds: Sequence[ColumnElement[bool]],
    names: Sequence[str] | None,
) -> list[WindowState]:
    """The windows of `tier` and the producers within bounds, by topic and time."""
    question = select(tables.windows).where(_w.tier.in_((PRODUCER_TIER, tier)), *bounds)
    if names is not None:
        question = question.where(_w.topic.in_(names))
    pairs: defaultdict[tuple[str, int], dict[str, Row[Any]]] = defaultdict(dict)
    for row in connection.execute(question):
        pairs[row.topic, row.window_start][row.tier] = row
    referenced = _referenced(connection, {topic for topic, _ in pairs})
    return [
        _state(key, pair.get(PRODUCER_TIER), pair.get(tier), key[0] in referenced)
        for key, pair in sorted(pairs.items())
    ]


def _state(
    key: tuple[str, int], sent: Row[Any] | None, seen: Row[Any] | None, referenced: bool
) -> WindowState:
    nothing = dict.fromkeys(_SUMMED, 0)
    moments = [row for row in (sent, seen) if row is not None]
    return WindowState(
        balance=balance_of(
            *key,
            nothing if sent is None else sent._asdict(),
            nothing if seen is None else seen._asdict(),
            referenced=referenced,
        ),
        window_start=key[1],
        first_sent=None if sent is None else sent.first_sent,
        last_sent=None if sent is None else sent.last_sent,
        last_heard=max(row.last_sent for row in moments),
        complete_at=None if seen is None else seen.complete_at,
    )


def _referenced(connection: Connection, names: set[str]) -> set[str]:
    c = tables.topics.c
    found = connection.scalars(select(c.topic).where(c.tier == PRODUCER_TIER))
    return names.intersection(found)


def topic_sums_in(
    connection: Connection,
    tier: str,
    bounds: Sequence[ColumnElement[bool]],
    containing: str | None,
    limit: int | None = None,
    offset: int = 0,
) -> list[Balance]:
    """Every topic's balance summed over windows, the worst first."""
    paired = _paired(tier, bounds, containing).subquery()
    p = paired.c
    gap = p.attempted - p.failed - p.dropped - p.accounted
    over = p.accounted - p.attempted + p.dropped
    known = (
        select(tables.topics.c.topic.label("topic"))
        .where(tables.topics.c.tier == PRODUCER_TIER)
        .subquery()
    )
    lost = func.sum(case((known.c.topic.is_(None), 0), (gap > 0, gap), else_=0))
    duplicated = func.sum(case((known.c.topic.is_(None), 0), (over > 0, over), else_=0))
    question = (
        select(
            p.topic,
            func.max(known.c.topic),
            *(func.sum(p[name]) for name in _SUMMED),
            lost,
            duplicated,
        )
        .select_from(paired.outerjoin(known, known.c.topic == p.topic))
        .group_by(p.topic)
        .order_by((lost + duplicated).desc(), p.topic)
        .limit(limit)
        .offset(offset)
    )
    return [_topic_sum(row) for row in connection.execute(question)]


def _topic_sum(row: Row[*tuple[Any, ...]]) -> Balance:
    topic, known, *rest = row
    counts = {name: int(n) for name, n in zip(_SUMMED, rest, strict=False)}
    lost, duplicated = (int(n) for n in rest[len(_SUMMED) :])
    return Balance(
        topic=topic,
        window_start=None,
        attempted=counts["attempted"],
        sent=counts["delivered"],
        failed=counts["failed"],
        dropped=counts["dropped"],
        unresolved=counts["unresolved"],
        accounted=counts["accounted"],
        quarantined=counts["quarantined"],
        late=counts["late"],
        gone=counts["gone"],
        lost=lost,
        duplicated=duplicated,
        referenced=known is not None,
    )


def _paired(
    tier: str, bounds: Sequence[ColumnElement[bool]], containing: str | None
) -> Select[Any]:
    """Per topic and window, the producers' and the tier's counts in one row.

    The producers have no `accounted` and the tiers no `attempted`, so a sum keeps them apart.
    """
    question = (
        select(
            _w.topic,
            _w.window_start,
            func.max(_w.last_sent).label("last_sent"),
            *(func.sum(_w[name]).label(name) for name in _SUMMED),
        )
        .where(_w.tier.in_((PRODUCER_TIER, tier)), *bounds)
        .group_by(_w.topic, _w.window_start)
    )
    return (
        question.where(_w.topic.contains(containing, autoescape=True)) if containing else question
    )


@dataclass(frozen=True, slots=True)
class Breach:
    """A topic's windows that a tier does not have as it should, summed."""

    topic: str
    windows: int
    first_window: int
    expected: int
    lost: int
    duplicated: int


def breaches_in(
    connection: Connection,
    tier: str,
    *,
    since: int,
    ended: int,
    heard_before: int,
    share: float,
    every_topic: bool,
) -> list[Breach]:
    """Topics with windows below the SLA `share`, the worst first.

    Judged are windows that start at `since` or later, have ended at `ended` and were last counted
    into before `heard_before`, of topics that producers count and, unless `every_topic`, `tier`.
    """
    paired = _paired(tier, within(since, ended - WINDOW_MS), None).subquery()
    p = paired.c
    expected = p.attempted - p.failed - p.dropped
    gap = expected - p.accounted
    over = p.accounted - p.attempted + p.dropped
    allowed = (1 - share) * case((expected > 0, expected), else_=0) + allowed_of(0, share)
    t = tables.topics.c
    bounds = [
        p.last_sent < heard_before,
        (gap > allowed) | (over > allowed),
        p.topic.in_(select(t.topic).where(t.tier == PRODUCER_TIER)),
    ]
    if not every_topic:
        bounds.append(p.topic.in_(select(t.topic).where(t.tier == tier)))
    lost, doubled = (func.sum(case((n > allowed, n), else_=0)) for n in (gap, over))
    rows = connection.execute(
        select(p.topic, func.count(), func.min(p.window_start), func.sum(expected), lost, doubled)
        .where(*bounds)
        .group_by(p.topic)
        .order_by((lost + doubled).desc(), p.topic)
    )
    return [Breach(row[0], *map(int, row[1:])) for row in rows]


def attempted_in(
    connection: Connection, bounds: Sequence[ColumnElement[bool]], topic: str
) -> dict[int, int]:
    """What producers attempted to send of a topic, by window."""
    rows = connection.execute(
        select(_w.window_start, _w.attempted).where(
            _w.tier == PRODUCER_TIER, _w.topic == topic, *bounds
        )
    )
    return {row.window_start: row.attempted for row in rows}


def drops_in(connection: Connection, topic: str, starts: Sequence[int]) -> dict[str, int]:
    """Drops by reason."""
    if not starts:
        return {}
    o = tables.outcomes.c
    rows = connection.execute(
        select(o.outcome, func.sum(o.messages))
        .where(o.topic == topic, o.window_start >= starts[0], o.window_start <= starts[-1])
        .group_by(o.outcome)
        .order_by(o.outcome)
    )
    return {outcome.partition(":")[2] or outcome: int(n) for outcome, n in rows}


def waited(window_start: int, complete_at: int | None) -> float | None:
    """Seconds from the end of a window until it was complete."""
    if complete_at is None:
        return None
    return max(0.0, (complete_at - window_start - WINDOW_MS) / 1000)


def percentiles(tier: str, waited: Sequence[float | None]) -> TimeToComplete:
    """Percentiles over windows; one that is not complete waits for ever."""
    known = sorted(seconds for seconds in waited if seconds is not None)

    def at(share: float) -> float | None:
        # Of all windows, those that are not complete included: they wait for ever.
        place = max(0, -(-int(share * 1000) * len(waited) // 1000) - 1)
        return known[place] if place < len(known) else None

    return TimeToComplete(tier, len(waited), len(known), at(0.5), at(0.95), at(0.99))
