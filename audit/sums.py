"""The SQL of sums: the states of windows, computed and summed by the database.

Rules: the states are those of `states`, whose function here gets columns instead of numbers. The
database sums over windows, and returns few rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

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
    or_,
    select,
    union_all,
)

from headworks._audit.balance import Balance, allowed_of, stated_balance
from headworks._audit.sql import LOADER_TIER, WindowBounds, proven_in
from headworks._audit.states import DEFINITIONS, states_of
from headworks._audit.store import tables
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit_counting import WINDOW_MS

_SENT: Final = ("attempted", "delivered", "failed", "dropped", "unresolved")  # the reference's
_SEEN = tuple(name for name in tables.COUNTED if name not in (*_SENT, "bytes"))
_STATES = (*DEFINITIONS, "abandoned", "in_flight")
_SUMS = (*_STATES, "removed", "unsure")
_MAX_DOUBTFUL_WINDOWS = 1_000  # of a question: the newest ones with a surplus
_Columns = Any  # of a table or an alias of one, by name


def topic_sums_in(connection: Connection, tier: str, bounds: WindowBounds) -> list[Balance]:
    """Return every topic's balance summed over windows, the worst first."""
    # Summed before they are put together: sorted are the windows of a topic, not of all at once.
    parts = (_sums_of(_produced(tier, bounds)), _sums_of(_foreign(tier, bounds)))
    s = union_all(*parts).subquery().c
    t = tables.topics.alias()
    known = (t.c.topic == s.topic) & (t.c.tier == PRODUCER_TIER)
    question = (
        select(s.topic, func.max(t.c.topic), *(func.sum(s[name]) for name in _SUMS))
        .outerjoin(t, known)
        .group_by(s.topic)
    )
    found = [_topic_sum(row) for row in connection.execute(question)]
    if any(row.surplus for row in found):
        proven = duplicates_in(connection, tier, bounds)
        found = [row.with_duplicates(proven.get(row.topic, 0)) for row in found]
    return sorted(found, key=worst_first)


def duplicates_in(connection: Connection, tier: str, bounds: WindowBounds) -> dict[str, int]:
    """Return how many messages of each topic are proven to be duplicated, in its newest windows."""
    p = _paired(tier, bounds).subquery().c
    newest = select(p.topic, p.window_start, _window_states(p)["surplus"])
    some = newest.where(p.accounted > p.attempted - p.dropped).order_by(p.window_start.desc())
    rows = connection.execute(some.limit(_MAX_DOUBTFUL_WINDOWS)).all()
    surplus = {(topic, window): n for topic, window, n in rows}
    found: Counter[str] = Counter()
    for key, proven in proven_in(connection, tier, list(surplus)).items():
        found[key[0]] += min(proven, surplus[key])
    return found


def worst_first(row: Balance) -> tuple[int, int, str]:
    """Return the order of topics: by their losses and duplicates, then by what is not there yet."""
    return -(row.losses + row.duplicated), -(row.missing + row.surplus), row.topic


def _sums_of(pairs: Select[Any]) -> Select[Any]:
    """Select the sums of a topic's windows: the states of each window, summed."""
    p = pairs.subquery().c
    of = {**_window_states(p), "removed": p.gone, "unsure": p.unsure}
    sums = (func.sum(of[name]).label(name) for name in _SUMS)
    return select(p.topic, *sums).group_by(p.topic)


def _window_states(pair: _Columns) -> dict[str, Any]:
    """Return the states of a pair of counts, as expressions of the database."""
    counts = {name: pair[name] for name in (*_SENT, "passed", *_SEEN)}
    return states_of(counts, lambda n: case((n > 0, n), else_=0))


def _topic_sum(row: Row[*tuple[Any, ...]]) -> Balance:
    topic, known, *rest = row
    sums = {name: int(n) for name, n in zip(_SUMS, rest, strict=True)}
    return stated_balance(
        topic,
        None,
        {name: sums[name] for name in _STATES},
        removed=sums["removed"],
        unsure=sums["unsure"],
        referenced=known is not None,
    )


def _paired(tier: str, bounds: WindowBounds) -> CompoundSelect[Any]:
    """Select one row per topic and window with the counts of producers and tier."""
    return union_all(_produced(tier, bounds), _foreign(tier, bounds))


def _produced(tier: str, bounds: WindowBounds) -> Select[Any]:
    """Select the windows that producers counted into."""
    sent, seen = tables.windows.alias("sent"), tables.windows.alias("seen")
    both = sent.outerjoin(seen, _same_window(seen, sent) & (seen.c.tier == tier))
    passed = sent.c.passed if tier == LOADER_TIER else literal(0)
    pairs = _pair(sent.c, sent.c, seen.c, passed).select_from(both)
    return pairs.where(sent.c.tier == PRODUCER_TIER, *bounds.of(sent.c))


def _foreign(tier: str, bounds: WindowBounds) -> Select[Any]:
    """Select the windows that only the tier counted into."""
    sent, seen = tables.windows.alias("sent"), tables.windows.alias("seen")
    missing = select(1).where(_same_window(sent, seen), sent.c.tier == PRODUCER_TIER)
    return _pair(seen.c, None, seen.c, literal(0)).where(
        seen.c.tier == tier, ~missing.correlate(seen).exists(), *bounds.of(seen.c)
    )


def _pair(
    key: _Columns, sent: _Columns | None, seen: _Columns, passed: ColumnElement[int]
) -> Select[Any]:
    last: ColumnElement[int] = func.coalesce(seen.last_sent, 0)
    if sent is not None:
        last = case((last > sent.last_sent, last), else_=sent.last_sent)
    return select(
        key.topic,
        key.window_start,
        last.label("last_sent"),
        *((literal(0) if sent is None else sent[name]).label(name) for name in _SENT),
        passed.label("passed"),
        *(func.coalesce(seen[name], 0).label(name) for name in _SEEN),
        func.coalesce(seen.unresolved, 0).label("unsure"),
    )


def _same_window(one: FromClause, other: FromClause) -> ColumnElement[bool]:
    return (one.c.window_start == other.c.window_start) & (one.c.topic == other.c.topic)


@dataclass(frozen=True, slots=True)
class Breach:
    """The windows of a topic in which a state is over the SLA, and their messages in it."""

    topic: str
    state: str
    windows: int
    first_window: int
    attempted: int
    messages: int


@dataclass(frozen=True, slots=True)
class Judgment:
    """The windows that are judged, and the SLA `share`.

    They start at `since` or later, have ended at `ended`, and were last counted into before
    `heard_before` unless they have lost or dropped messages. Messages wait for too long if their
    window was last counted into before `waiting_since`.
    """

    since: int
    ended: int
    heard_before: int
    waiting_since: int
    share: float


def breaches_in(
    connection: Connection, tier: str, states: Sequence[str], judgment: Judgment
) -> list[Breach]:
    """Return the topics with windows in which one of `states` is over the SLA.

    The topics are those that producers count.
    """
    share = judgment.share
    p = _paired(tier, WindowBounds(judgment.since, judgment.ended - WINDOW_MS)).subquery().c
    found = _window_states(p)
    found["waiting"] = case((p.last_sent < judgment.waiting_since, found["waiting"]), else_=0)
    t = tables.topics.c
    judged = [
        or_(p.last_sent < judgment.heard_before, found["lost"] > 0, found["dropped"] > 0),
        p.topic.in_(select(t.topic).where(t.tier == PRODUCER_TIER)),
    ]
    allowed = (1 - share) * case((p.attempted > 0, p.attempted), else_=0) + allowed_of(0, share)
    columns: list[Any] = []
    for state in states:
        over = found[state] > allowed
        columns += [
            func.sum(case((over, 1), else_=0)),
            func.min(case((over, p.window_start))),
            func.sum(case((over, p.attempted), else_=0)),
            func.sum(case((over, found[state]), else_=0)),
        ]
    some = or_(*(found[state] > allowed for state in states))
    rows = connection.execute(
        select(p.topic, *columns).where(*judged, some).group_by(p.topic).order_by(p.topic)
    )
    return [
        Breach(row[0], state, *map(int, row[1 + 4 * n : 5 + 4 * n]))
        for row in rows
        for n, state in enumerate(states)
        if row[1 + 4 * n]
    ]


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
