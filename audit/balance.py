"""The balance of a tier against the producers: the arithmetic of loss and duplication.

Rules: pure. A balance is per topic and window. Sums over windows never cancel out: a loss in one
window is not repaired by a duplicate in another.

- Expected: attempted, without failed and dropped, both of which the application knows of. Messages
  of a killed producer (`unresolved`, and `in_flight` until that is reported) are expected.
- Lost: expected and not accounted for. This includes messages that are still on their way.
- Duplicated: accounted for beyond all that was attempted and not dropped. A failed message may
  have arrived, if only its acknowledgement was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Balance", "allowed_of", "balance_of", "total"]

_ROUNDING_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Balance:
    """The reference and one tier, for one topic and one window (None: all windows).

    `sent` were acknowledged by the broker. `gone` were removed by the broker before the tier read
    them. `unsure` were passed on by a mirror without an acknowledgement, and came again.

    `referenced` is False if no producer has counted the topic: nothing is claimed about it.
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
        """The messages that should have arrived."""
        return self.attempted - self.failed - self.dropped

    @property
    def in_flight(self) -> int:
        """The messages that were attempted and not yet reported as delivered or failed."""
        return self.expected - self.sent - self.unresolved

    @property
    def completeness(self) -> float:
        """The share of expected messages that arrived, 0 to 1; 1 if none is expected."""
        return 1.0 if self.expected <= 0 else (self.expected - self.lost) / self.expected

    @property
    def complete(self) -> bool:
        """Return whether every expected message arrived exactly once."""
        return self.lost == 0 and self.duplicated == 0

    def meets(self, share: float) -> bool:
        """Return whether at most 1 - `share` of the expected messages is lost or duplicated."""
        allowed = allowed_of(self.expected, share)
        return self.lost <= allowed and self.duplicated <= allowed


def allowed_of(expected: int, share: float) -> float:
    """Return how many of the expected messages may be wrong for an SLA of `share`."""
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
    """Return the balance of the producers' counts and a tier's, both by column of the store."""
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
    """Return the sum of balances over windows (and topics), under the name `topic`."""
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
