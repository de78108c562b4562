"""The sums of the audit, computed naively: every increment in memory, added up on demand.

Rules: pure, without clock and I/O. It knows no offsets, so every missing message is waiting in it.
Adding an increment twice (same id) changes nothing, and the order does not matter. It shares only
the arithmetic of a balance with the store, so that `audit verify` can compare the two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from headworks._audit.balance import Balance, balance_of
from headworks._audit.increments import Increment
from headworks._audit_counting import AUDIT_TOPIC

_PRODUCER_TIER = "producer"
_GIVEN_UP_OUTCOMES = ("dropped:timed_out", "dropped:closed")
_AT_LOADER = ("loaded", "quarantined")
_AT_GROUP = ("consumed", "skipped", "dead", "retried")
_ACCOUNTED_OUTCOMES = (*_AT_LOADER, *_AT_GROUP, "mirrored")


class Ledger:
    """Increments by topic, tier, and window."""

    def __init__(self) -> None:
        self._seen: set[str] = set()  # ids of the counted increments
        self._counts: defaultdict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)

    def add(self, increment: Increment) -> bool:
        """Count an increment. Return False if it was counted before, or is a heartbeat."""
        if increment.id in self._seen or increment.topic == AUDIT_TOPIC:
            return False
        self._seen.add(increment.id)
        key = (increment.topic, increment.tier, increment.window_start)
        self._counts[key].update(increment.counts)
        return True

    def topics(self) -> list[str]:
        """Return every topic that a tier has reported, sorted."""
        return sorted({topic for topic, _, _ in self._counts})

    def tiers(self) -> list[str]:
        """Return every tier below the producers that has reported, sorted."""
        return sorted({tier for _, tier, _ in self._counts} - {_PRODUCER_TIER})

    def balances(self, tier: str, topic: str | None = None) -> list[Balance]:
        """Return the balance of `tier` against the producers, by topic and window."""
        return list(self._balances(tier, topic))

    def _balances(self, tier: str, topic: str | None) -> Iterator[Balance]:
        referenced = {t for t, name, _ in self._counts if name == _PRODUCER_TIER}
        keys = {
            (t, window)
            for t, name, window in self._counts
            if name in (tier, _PRODUCER_TIER) and topic in (None, t)
        }
        for t, window in sorted(keys):
            sent = _columns(self._counts.get((t, _PRODUCER_TIER, window), Counter()))
            seen = _columns(self._counts.get((t, tier, window), Counter()))
            yield balance_of(t, window, sent, seen, referenced=t in referenced)


def _columns(counts: Counter[str]) -> Counter[str]:
    columns = Counter(counts)
    given_up = {outcome: counts[outcome] for outcome in _GIVEN_UP_OUTCOMES}
    drops = sum(n for outcome, n in counts.items() if outcome.startswith("dropped"))
    columns["dropped"] = drops - sum(given_up.values())
    columns["failed"] += sum(given_up.values())
    columns["attempted"] -= counts["resent"]
    columns["accounted"] = sum(counts[outcome] for outcome in _ACCOUNTED_OUTCOMES)
    columns["gone"] = counts["lost"] + counts["damaged"]
    return columns
