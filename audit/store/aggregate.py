"""From increments to changes of the sums: pure, and independent of their order.

Rules: the caller has removed increments that were counted before. The audit topic is not counted.

- A tier below the producer accounts for loaded, quarantined, consumed, skipped, dead, retried, and
  mirrored messages. `late` is part of `loaded`. `lost` and `damaged` (here `gone`) never
  reached the tier.
- A message that a producer gave up (timed out, or left at close) is `failed`; it may have arrived.
- A message that a producer sends again for a dead one (`resent`) was attempted before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from headworks._audit.increments import Increment
from headworks._audit.store.tables import COUNTED

PRODUCER_TIER = "producer"
_ACCOUNTED_OUTCOMES = frozenset(
    ("loaded", "quarantined", "consumed", "skipped", "dead", "retried", "mirrored")
)
_RESOLVED_OUTCOMES = frozenset(("delivered", "failed", "unresolved"))
_COLUMN_OF = {
    **{name: name for name in ("attempted", "delivered", "failed", "unresolved", "quarantined")},
    "dropped:timed_out": "failed",
    "dropped:closed": "failed",
    "late": "late",
    "lost": "gone",
    "damaged": "gone",
}
WindowKey = tuple[str, int, str]


@dataclass(slots=True)
class WindowChange:
    """The additions to a row of `windows`, by column, and the times of the reports."""

    first_sent: int
    last_sent: int
    added: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))


@dataclass(slots=True)
class SourceChange:
    """The additions to a row of `sources`, and the times of the reports."""

    first_sent: int
    last_sent: int
    unsettled: int = 0


@dataclass(frozen=True, slots=True)
class StoreChanges:
    """All changes of a batch. Keys: (tier, window, topic); (topic, window, tier, ...)."""

    windows: dict[WindowKey, WindowChange]
    outcomes: Counter[tuple[str, int, str, str]]
    progress: Counter[tuple[str, int, str, int]]
    sources: dict[tuple[str, str, str], SourceChange]


def aggregate(increments: Iterable[Increment]) -> StoreChanges:
    """Return the sum of `increments`, each of them new."""
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
    """Add an increment to its window. Return the messages accounted for, and the unsettled ones."""
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
