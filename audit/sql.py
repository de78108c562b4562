"""The SQL of `audit.queries`: rows of the store to balances, in one transaction.

Rules: the database sums over topics and windows, and returns few rows. A question takes a few
statements for any number of windows, because each statement has a fixed cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    FromClause,
    Row,
    Select,
    case,
    func,
    literal,
    select,
    union_all,
)

from headworks._audit.balance import Balance, allowed_of, balance_of
from headworks._audit.results import TimeToComplete, WindowState
from headworks._audit.store import tables
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit_counting import WINDOW_MS

__all__ = [
    "Breach",
    "WindowBounds",
    "attempted_in",
    "breaches_in",
    "drops_in",
    "first_below",
    "newest_windows",
    "percentiles",
    "seconds_to_complete",
    "states_in",
    "topic_sums_in",
]

_windows = tables.windows.c
_SUMMED = tuple(name for name in tables.COUNTED if name != "bytes")
_NO_COUNTS = dict.fromkeys(_SUMMED, 0)
_SENT = ("attempted", "delivered", "failed", "dropped", "unresolved")  # the reference's columns
_SEEN = tuple(name for name in _SUMMED if name not in _SENT)
_PAIRED = (*_SENT, *_SEEN, "unsure")
_Columns = Any  # of a table or an alias of one, by name
_MAX_AHEAD_MS = 3_600_000  # windows further in the future are somebody's broken clock


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """The windows that start in [since, until), of the named topics or of matching names."""

    since: int | None = None
    until: int | None = None
    topics: Sequence[str] | None = None
    containing: str = ""

    def of(self, columns: _Columns) -> list[ColumnElement[bool]]:
        """Return the conditions on these columns."""
        found = []
        if self.since is not None:
            found.append(columns.window_start >= self.since)
        if self.until is not None:
            found.append(columns.window_start < self.until)
        if self.topics is not None:
            found.append(columns.topic.in_(self.topics))
        if self.containing:
            found.append(columns.topic.contains(self.containing, autoescape=True))
        return found


def newest_windows(
    connection: Connection, tier: str | None, now: int, count: int, topic: str | None = None
) -> list[int]:
    """Return the starts of the newest windows with counts, oldest first."""
    of = {} if topic is None else {"topic": topic}
    kinds = [of] if tier is None else [{**of, "tier": name} for name in {tier, PRODUCER_TIER}]
    before = literal(now + _MAX_AHEAD_MS + 1)
    found = {start for kind in kinds for start in connection.scalars(_chain(before, count, kind))}
    return sorted(found - {None})[-count:]


def _chain(before: ColumnElement[int], count: int, of: Mapping[str, str]) -> Select[Any]:
    """Select the newest windows before a time, of a tier, a topic, or both; the last may be null.

    Each window takes one seek in an index: a scan would read every topic of every window.
    """
    window = tables.windows.alias()
    mine = [window.c[name] == value for name, value in of.items()]
    newest = select(func.max(window.c.window_start)).where(*mine)
    first = newest.where(window.c.window_start < before).scalar_subquery()
    found = select(first.label("start"), literal(1).label("number")).cte("found", recursive=True)
    older = newest.where(window.c.window_start < found.c.start).correlate(found)
    more = (found.c.number < count) & found.c.start.is_not(None)
    next_ = select(older.scalar_subquery(), found.c.number + 1).where(more)
    return select(found.union_all(next_).c.start)


def states_in(
    connection: Connection,
    tier: str,
    bounds: WindowBounds,
) -> list[WindowState]:
    """Return the windows of `tier` and the producers within bounds, by topic and time."""
    columns = (
        _windows.topic,
        _windows.window_start,
        _windows.tier,
        _windows.first_sent,
        _windows.last_sent,
        _windows.complete_at,
    )
    question = select(*columns, *(_windows[name] for name in _SUMMED))
    asked = question.where(_windows.tier.in_((PRODUCER_TIER, tier)), *bounds.of(_windows))
    pairs: defaultdict[tuple[str, int], dict[str, Row[Any]]] = defaultdict(dict)
    for row in connection.execute(asked).all():
        pairs[row.topic, row.window_start][row.tier] = row
    referenced = _referenced(connection, {topic for topic, _ in pairs})
    return [
        _state(key, pair.get(PRODUCER_TIER), pair.get(tier), key[0] in referenced)
        for key, pair in sorted(pairs.items())
    ]


def _state(
    key: tuple[str, int], sent: Row[Any] | None, seen: Row[Any] | None, referenced: bool
) -> WindowState:
    moments = [row.last_sent for row in (sent, seen) if row is not None]
    return WindowState(
        balance=balance_of(
            *key,
            _NO_COUNTS if sent is None else _counts(sent),
            _NO_COUNTS if seen is None else _counts(seen),
            referenced=referenced,
        ),
        window_start=key[1],
        first_sent=None if sent is None else sent.first_sent,
        last_sent=None if sent is None else sent.last_sent,
        last_heard=max(moments),
        complete_at=None if seen is None else seen.complete_at,
    )


def _counts(row: Row[Any]) -> Mapping[str, int]:
    return dict(zip(_SUMMED, row[-len(_SUMMED) :], strict=True))


def _referenced(connection: Connection, names: set[str]) -> set[str]:
    c = tables.topics.c
    found = connection.scalars(select(c.topic).where(c.tier == PRODUCER_TIER))
    return names.intersection(found)


def topic_sums_in(
    connection: Connection,
    tier: str,
    bounds: WindowBounds,
    limit: int | None = None,
    offset: int = 0,
) -> list[Balance]:
    """Return every topic's balance summed over windows, the worst first."""
    # Summed before they are put together: sorted are the windows of a topic, not of all at once.
    parts = (_sums_of(_produced(tier, bounds)), _sums_of(_foreign(tier, bounds)))
    s = union_all(*parts).subquery().c
    t = tables.topics.alias()
    known = (t.c.topic == s.topic) & (t.c.tier == PRODUCER_TIER)
    lost, duplicated = (
        func.sum(case((t.c.topic.is_(None), 0), else_=n)) for n in (s.lost, s.duplicated)
    )
    question = (
        select(
            s.topic,
            func.max(t.c.topic),
            *(func.sum(s[name]) for name in _PAIRED),
            lost,
            duplicated,
        )
        .outerjoin(t, known)
        .group_by(s.topic)
        .order_by((lost + duplicated).desc(), s.topic)
        .limit(limit)
        .offset(offset)
    )
    return [_topic_sum(row) for row in connection.execute(question)]


def _sums_of(pairs: Select[Any]) -> Select[Any]:
    """Select the sums of a topic's windows, with the losses and duplicates of each window."""
    p = pairs.subquery().c
    gap = p.attempted - p.failed - p.dropped - p.accounted
    over = p.accounted - p.attempted + p.dropped
    return select(
        p.topic,
        *(func.sum(p[name]).label(name) for name in _PAIRED),
        func.sum(case((gap > 0, gap), else_=0)).label("lost"),
        func.sum(case((over > 0, over), else_=0)).label("duplicated"),
    ).group_by(p.topic)


def _topic_sum(row: Row[*tuple[Any, ...]]) -> Balance:
    topic, known, *rest = row
    counts = {name: int(n) for name, n in zip(_PAIRED, rest, strict=False)}
    lost, duplicated = (int(n) for n in rest[len(_PAIRED) :])
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
        unsure=counts["unsure"],
        lost=lost,
        duplicated=duplicated,
        referenced=known is not None,
    )


def _paired(tier: str, bounds: WindowBounds) -> CompoundSelect[Any]:
    """Select one row per topic and window with the counts of producers and tier."""
    return union_all(_produced(tier, bounds), _foreign(tier, bounds))


def _produced(tier: str, bounds: WindowBounds) -> Select[Any]:
    """Select the windows that producers counted into."""
    sent, seen = tables.windows.alias("sent"), tables.windows.alias("seen")
    both = sent.outerjoin(seen, _same_window(seen, sent) & (seen.c.tier == tier))
    pairs = _pair(sent.c, sent.c, seen.c).select_from(both)
    return pairs.where(sent.c.tier == PRODUCER_TIER, *bounds.of(sent.c))


def _foreign(tier: str, bounds: WindowBounds) -> Select[Any]:
    """Select the windows that only the tier counted into."""
    sent, seen = tables.windows.alias("sent"), tables.windows.alias("seen")
    missing = select(1).where(_same_window(sent, seen), sent.c.tier == PRODUCER_TIER)
    return _pair(seen.c, None, seen.c).where(
        seen.c.tier == tier, ~missing.correlate(seen).exists(), *bounds.of(seen.c)
    )


def _pair(key: _Columns, sent: _Columns | None, seen: _Columns) -> Select[Any]:
    last: ColumnElement[int] = func.coalesce(seen.last_sent, 0)
    if sent is not None:
        last = case((last > sent.last_sent, last), else_=sent.last_sent)
    return select(
        key.topic,
        key.window_start,
        last.label("last_sent"),
        *((literal(0) if sent is None else sent[name]).label(name) for name in _SENT),
        *(func.coalesce(seen[name], 0).label(name) for name in _SEEN),
        func.coalesce(seen.unresolved, 0).label("unsure"),
    )


def _same_window(one: FromClause, other: FromClause) -> ColumnElement[bool]:
    return (one.c.window_start == other.c.window_start) & (one.c.topic == other.c.topic)


@dataclass(frozen=True, slots=True)
class Breach:
    """The sums of a topic's windows below the SLA at a tier."""

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
    """Return the topics with windows below the SLA `share`, the worst first.

    It judges windows that start at `since` or later, have ended at `ended`, and were last counted
    into before `heard_before`. The topics are those that producers count and, unless `every_topic`,
    `tier` too.
    """
    paired = _paired(tier, WindowBounds(since, ended - WINDOW_MS)).subquery()
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


def first_below(
    connection: Connection,
    tier: str,
    bounds: WindowBounds,
    share: float,
) -> int | None:
    """Return the first window within bounds that lacks more than 1 - `share` at a tier."""
    p = _paired(tier, bounds).subquery().c
    expected = p.attempted - p.failed - p.dropped
    allowed = (1 - share) * expected + allowed_of(0, share)
    below = select(func.min(p.window_start)).where(expected - p.accounted > allowed, expected > 0)
    first = connection.scalar(below)
    return None if first is None else int(first)


def attempted_in(connection: Connection, bounds: WindowBounds) -> dict[int, int]:
    """Return the attempts of the producers by window."""
    rows = connection.execute(
        select(_windows.window_start, _windows.attempted).where(
            _windows.tier == PRODUCER_TIER, *bounds.of(_windows)
        )
    )
    return {row.window_start: row.attempted for row in rows}


def drops_in(connection: Connection, topic: str, starts: Sequence[int]) -> dict[str, int]:
    """Return the drops by reason."""
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


def seconds_to_complete(window_start: int, complete_at: int | None) -> float | None:
    """Return the seconds from the end of a window until it was complete."""
    if complete_at is None:
        return None
    return max(0.0, (complete_at - window_start - WINDOW_MS) / 1000)


def percentiles(tier: str, seconds_to_complete: Sequence[float | None]) -> TimeToComplete:
    """Return percentiles over windows; an incomplete window counts as infinite."""
    known = sorted(seconds for seconds in seconds_to_complete if seconds is not None)

    def at(share: float) -> float | None:
        # Of all windows, those that are not complete included: they wait for ever.
        place = max(0, -(-int(share * 1000) * len(seconds_to_complete) // 1000) - 1)
        return known[place] if place < len(known) else None

    return TimeToComplete(tier, len(seconds_to_complete), len(known), at(0.5), at(0.95), at(0.99))
