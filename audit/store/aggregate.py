"""Increments to the sums that they change: pure, and the same in any order.

Rules: the caller has removed what was counted before; the audit topic itself is not counted.

What a tier below the producer accounts for is what it had in its hands: rows, quarantined,
consumed, skipped, mirrored. `late` is part of `loaded` and `lost` (here `gone`) never reached the
tier, so neither is added to it. What was given up on its way (timed out, or left when a producer
closed) may have arrived, so it is `failed`. What a producer sends again for a dead one (`resent`)
was attempted before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from headworks._audit.increments import Increment
from headworks._audit.store.tables import COUNTED

__all__ = ["PRODUCER_TIER", "SourceChange", "StoreChanges", "WindowChange", "aggregate"]

PRODUCER_TIER = "producer"
_ACCOUNTED_OUTCOMES = frozenset(("loaded", "quarantined", "consumed", "skipped", "mirrored"))
_RESOLVED_OUTCOMES = frozenset(("delivered", "failed", "unresolved"))
_COLUMN_OF = {
    **{name: name for name in ("attempted", "delivered", "failed", "unresolved", "quarantined")},
    "dropped:timed_out": "failed",
    "dropped:closed": "failed",
    "late": "late",
    "lost": "gone",
}
WindowKey = tuple[str, int, str]


@dataclass(slots=True)
class WindowChange:
    """What is added to a row of `windows`, by column, and when it was said."""

    first_sent: int
    last_sent: int
    added: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))


@dataclass(slots=True)
class SourceChange:
    """What is added to a row of `sources`; `lag_ms` is the shortest way to here, if known."""

    first_sent: int
    last_sent: int
    unsettled: int = 0


@dataclass(frozen=True, slots=True)
class StoreChanges:
    """All that a batch changes. Keys: (tier, window, topic); (topic, window, tier, ...)."""

    windows: dict[WindowKey, WindowChange]
    outcomes: Counter[tuple[str, int, str, str]]
    progress: Counter[tuple[str, int, str, int]]
    sources: dict[tuple[str, str, str], SourceChange]


def aggregate(increments: Iterable[Increment]) -> StoreChanges:
    """What `increments`, each of them new, add up to."""
    windows: dict[WindowKey, WindowChange] = {}
    outcomes: Counter[tuple[str, int, str, str]] = Counter()
    progress: defaultdict[tuple[str, int, str, int], int] = defaultdict(int)
    sources: dict[tuple[str, str, str], SourceChange] = {}
    for one in increments:
        sent = one.sent_at
        key = (one.tier, one.window_start, one.topic)
        change = windows.get(key)
        if change is None:
            change = windows[key] = WindowChange(sent, sent)
        elif sent < change.first_sent:
            change.first_sent = sent
        elif sent > change.last_sent:
            change.last_sent = sent
        accounted, unsettled = _add(one, change.added, outcomes)
        if accounted:
            progress[one.topic, one.window_start, one.tier, -(-sent // 1000)] += accounted
        who = (one.tier, one.host, one.application)
        source = sources.get(who)
        if source is None:
            source = sources[who] = SourceChange(sent, sent)
        else:
            source.first_sent = min(source.first_sent, sent)
            source.last_sent = max(source.last_sent, sent)
        source.unsettled += unsettled
    return StoreChanges(windows, outcomes, Counter(progress), sources)


def _add(
    one: Increment, added: dict[str, int], outcomes: Counter[tuple[str, int, str, str]]
) -> tuple[int, int]:
    """Add an increment to its window; messages accounted for, and attempted but not resolved."""
    accounted = unsettled = 0
    for outcome, n in one.counts.items():
        column = _COLUMN_OF.get(outcome)
        if column is not None:
            added[column] += n
        if outcome in _ACCOUNTED_OUTCOMES:
            accounted += n
            if outcome == "mirrored":
                unsettled -= n  # a mirror says what it attempts, too
        elif outcome == "attempted":
            unsettled += n
        elif outcome in _RESOLVED_OUTCOMES:
            unsettled -= n
        elif outcome == "resent":
            added["attempted"] -= n
        elif outcome.startswith("dropped"):
            if column is None:
                added["dropped"] += n
            unsettled -= n
            outcomes[one.topic, one.window_start, one.tier, outcome] += n
    added["accounted"] += accounted
    added["bytes"] += one.bytes
    return accounted, unsettled
