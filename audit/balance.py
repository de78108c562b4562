"""What one tier has of what the producers sent: the arithmetic of loss and duplication.

Rules: pure. Per topic and window, and summed over windows without ever cancelling out (a loss in
one window is not repaired by a duplicate in another).

- Expected is what was attempted and neither failed nor was dropped, both of which the application
  was told. So what a killed producer took with it (`unresolved`, and `in_flight` while nobody has
  reported its end) is expected, and lost unless it arrived.
- Lost is what is expected and not accounted for. Seen while messages travel, it includes those.
- What failed may have arrived all the same (the answer was lost, not the message), so duplicated
  is only what is accounted for beyond all that was attempted and not dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Balance", "allowed_of", "balance_of", "total"]

_ROUNDING_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Balance:
    """The reference and one tier, for one topic and one window (None: all windows).

    `sent` is what the broker acknowledged; `gone` is what the tier says the broker no longer had,
    `unsure` what it passed on itself without hearing of its fate (a mirror's; it came again).
    `referenced` is False for a topic that no producer has counted: nothing is claimed about it.
    """

    topic: str
    window_start: int | None
    attempted: int
    sent: int
    failed: int
    dropped: int
    unresolved: int
    accounted: int
    quarantined: int
    late: int
    gone: int
    unsure: int
    lost: int
    duplicated: int
    referenced: bool

    @property
    def expected(self) -> int:
        """Messages that should be there."""
        return self.attempted - self.failed - self.dropped

    @property
    def in_flight(self) -> int:
        """Messages attempted of whose fate nobody has reported yet."""
        return self.expected - self.sent - self.unresolved

    @property
    def completeness(self) -> float:
        """The share of what is expected that is accounted for, 0 to 1; nothing is complete."""
        return 1.0 if self.expected <= 0 else (self.expected - self.lost) / self.expected

    @property
    def complete(self) -> bool:
        """Whether every message expected is accounted for exactly once."""
        return self.lost == 0 and self.duplicated == 0

    def meets(self, share: float) -> bool:
        """Whether no more than 1 - `share` of what is expected is lost, nor is duplicated."""
        allowed = allowed_of(self.expected, share)
        return self.lost <= allowed and self.duplicated <= allowed


def allowed_of(expected: int, share: float) -> float:
    """How many messages of `expected` may be wrong for an SLA of `share`."""
    # A hair more, because 1 - 0.8 is less than a fifth.
    return (1 - share) * max(0, expected) + _ROUNDING_TOLERANCE


def balance_of(
    topic: str,
    window_start: int | None,
    sent: Mapping[str, int],
    seen: Mapping[str, int],
    *,
    referenced: bool,
) -> Balance:
    """Balance the producers' counts `sent` and a tier's `seen`, both by column of the store."""
    attempted, failed, dropped = sent["attempted"], sent["failed"], sent["dropped"]
    accounted = seen["accounted"]
    return Balance(
        topic=topic,
        window_start=window_start,
        attempted=attempted,
        sent=sent["delivered"],
        failed=failed,
        dropped=dropped,
        unresolved=sent["unresolved"],
        accounted=accounted,
        quarantined=seen["quarantined"],
        late=seen["late"],
        gone=seen["gone"],
        unsure=seen["unresolved"],
        lost=max(0, attempted - failed - dropped - accounted) if referenced else 0,
        duplicated=max(0, accounted - (attempted - dropped)) if referenced else 0,
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
        late=sum(row.late for row in rows),
        gone=sum(row.gone for row in rows),
        unsure=sum(row.unsure for row in rows),
        lost=sum(row.lost for row in rows),
        duplicated=sum(row.duplicated for row in rows),
        referenced=all(row.referenced for row in rows),
    )
