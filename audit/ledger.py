"""The sums of the audit: increments in any order and any number of copies to exact balances.

Rules: pure, no clock and no I/O; adding an increment twice (same id) changes nothing; the answer
does not depend on the order of addition.

The reference is the producer tier's `delivered`: what the broker acknowledged. A tier accounts
for a message when it loaded it or put it in quarantine. Per topic and window, what is accounted
for less than the reference is lost, what is more is duplicated; the two are summed over windows
without ever cancelling out (a loss in one window is not repaired by a duplicate in another).
Messages whose producer was killed before it heard of their fate are `unresolved`: whether or not
they arrived, they are neither lost nor duplicated, and shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["PRODUCER_TIER", "Balance", "Increment", "Ledger", "total"]

PRODUCER_TIER = "producer"
_ACCOUNTED = ("loaded", "quarantined", "consumed", "skipped", "mirrored")


@dataclass(frozen=True, slots=True)
class Increment:
    """One audit message: what one tier counted since it last reported.

    `window_start` and `sent_at` are milliseconds since 1970 UTC; `counts` is by outcome.
    """

    id: str
    topic: str
    tier: str
    window_start: int
    counts: Mapping[str, int]
    bytes: int
    host: str
    application: str
    sent_at: int


@dataclass(frozen=True, slots=True)
class Balance:
    """The reference and one tier, for one topic and one window (None: all windows)."""

    topic: str
    window_start: int | None
    attempted: int
    sent: int
    failed: int
    dropped: int
    unresolved: int
    accounted: int
    quarantined: int
    lost: int
    duplicated: int
    referenced: bool

    @property
    def completeness(self) -> float:
        """The share of the reference that is accounted for, 0 to 1; nothing sent is complete."""
        return 1.0 if self.sent == 0 else (self.sent - self.lost) / self.sent

    @property
    def complete(self) -> bool:
        """Whether every message sent is accounted for exactly once."""
        return self.lost == 0 and self.duplicated == 0


class Ledger:
    """Increments by topic, tier and window."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._counts: defaultdict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)

    def add(self, increment: Increment) -> bool:
        """Count an increment; False if it was counted before."""
        if increment.id in self._seen:
            return False
        self._seen.add(increment.id)
        key = (increment.topic, increment.tier, increment.window_start)
        self._counts[key].update(increment.counts)
        return True

    def topics(self) -> list[str]:
        """Every topic that some tier has reported, sorted."""
        return sorted({topic for topic, _, _ in self._counts})

    def balances(self, tier: str, topic: str | None = None) -> list[Balance]:
        """The balance of `tier` against the producers per topic and window, in that order."""
        referenced = {t for t, name, _ in self._counts if name == PRODUCER_TIER}
        keys = {
            (t, window)
            for t, name, window in self._counts
            if name in (tier, PRODUCER_TIER) and topic in (None, t)
        }
        return [self._balance(t, window, tier, t in referenced) for t, window in sorted(keys)]

    def _balance(self, topic: str, window: int, tier: str, referenced: bool) -> Balance:
        sent = self._counts.get((topic, PRODUCER_TIER, window), Counter())
        seen = self._counts.get((topic, tier, window), Counter())
        accounted = sum(seen[outcome] for outcome in _ACCOUNTED)
        gap = sent["delivered"] - accounted if referenced else 0
        return Balance(
            topic=topic,
            window_start=window,
            attempted=sent["attempted"],
            sent=sent["delivered"],
            failed=sent["failed"],
            dropped=sum(n for outcome, n in sent.items() if outcome.startswith("dropped")),
            unresolved=sent["unresolved"],
            accounted=accounted,
            quarantined=seen["quarantined"],
            lost=max(0, gap),
            duplicated=max(0, -gap - sent["unresolved"]),
            referenced=referenced,
        )


def total(balances: Iterable[Balance], topic: str = "") -> Balance:
    """The sum of balances over windows (and topics), shown under the name `topic`."""
    rows = list(balances)
    return Balance(
        topic=topic,
        window_start=None,
        attempted=sum(row.attempted for row in rows),
        sent=sum(row.sent for row in rows),
        failed=sum(row.failed for row in rows),
        dropped=sum(row.dropped for row in rows),
        unresolved=sum(row.unresolved for row in rows),
        accounted=sum(row.accounted for row in rows),
        quarantined=sum(row.quarantined for row in rows),
        lost=sum(row.lost for row in rows),
        duplicated=sum(row.duplicated for row in rows),
        referenced=all(row.referenced for row in rows),
    )
