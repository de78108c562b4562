"""The SQL of `audit.queries`: rows of the store to balances, in one transaction.

Rules: the database sums over topics and windows, and returns few rows. A question takes a few
statements for any number of windows, because each statement has a fixed cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    func,
    literal,
    select,
)

from headworks._audit.balance import balance_of
from headworks._audit.proof import proven_duplicates
from headworks._audit.results import TimeToComplete, WindowState
from headworks._audit.store import tables
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit_counting import WINDOW_MS

_windows = tables.windows.c
_SUMMED = (*(name for name in tables.COUNTED if name != "bytes"), "passed")
_NO_COUNTS = dict.fromkeys(_SUMMED, 0)
LOADER_TIER = "hadoop"  # the only tier whose offsets are known
_MAX_GAP_MS = 3 * 3_600_000
WindowKey = tuple[str, int]  # topic and window
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


def time_axis(starts: Sequence[int], count: int) -> list[int]:
    """Return the windows of an axis through `starts`, oldest first.

    Windows without counts stand on it, so an outage is a gap: at most `count` of them, the newest
    first. A gap of more than three hours is left out, because event times may be years apart.
    """
    axis: list[int] = []
    for start in reversed(starts):
        gap = range(start + WINDOW_MS, axis[-1], WINDOW_MS) if axis else range(0)
        if len(gap) * WINDOW_MS <= _MAX_GAP_MS and len(gap) <= count:
            axis.extend(reversed(gap))
            count -= len(gap)
        axis.append(start)
    return axis[::-1]


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
    states = {
        key: _state(tier, key, pair.get(PRODUCER_TIER), pair.get(tier), key[0] in referenced)
        for key, pair in sorted(pairs.items())
    }
    doubtful = [key for key, state in states.items() if state.balance.surplus]
    for key, proven in proven_in(connection, tier, doubtful).items():
        balance = states[key].balance.with_duplicates(proven)
        states[key] = replace(states[key], balance=balance)
    return list(states.values())


def proven_in(connection: Connection, tier: str, keys: list[WindowKey]) -> dict[WindowKey, int]:
    """Return how many messages of each window are proven to be duplicated at a tier."""
    return proven_duplicates(connection, keys) if keys and tier == LOADER_TIER else {}


def _state(
    tier: str,
    key: tuple[str, int],
    sent: Row[Any] | None,
    seen: Row[Any] | None,
    referenced: bool,
) -> WindowState:
    moments = [row.last_sent for row in (sent, seen) if row is not None]
    counts = _NO_COUNTS if sent is None else _counts(sent)
    return WindowState(
        balance=balance_of(
            *key,
            counts if tier == LOADER_TIER else {**counts, "passed": 0},
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
