"""The balance of a tier against the producers: the states of a topic's messages.

Rules: pure. A balance is per topic and window. Sums over windows never cancel out: a loss in one
window is not repaired by a surplus in another. `states` defines each state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from headworks._audit.states import PRODUCER_COUNTS, TIER_COUNTS, states_of

_ROUNDING_TOLERANCE = 1e-6
_SAME = ("attempted", "delivered", "dropped", "loaded", "quarantined", "late")


@dataclass(frozen=True, slots=True)
class Balance:
    """The states of one topic's messages at one tier, in one window (None: all windows).

    `abandoned` messages are unresolved, and can no longer arrive. `in_flight` messages have no
    reported outcome. The broker removed `removed` messages before the tier read them, or they were
    in damaged batches. A mirror passed on `unsure` messages without an acknowledgement, and they
    came again.

    `referenced` is False if no producer has counted the topic: nothing is claimed about it.
    """

    topic: str
    window_start: int | None
    attempted: int
    delivered: int
    loaded: int
    quarantined: int
    waiting: int
    late: int
    failed: int
    dropped: int
    unresolved: int
    abandoned: int
    in_flight: int
    lost: int
    surplus: int
    duplicated: int
    removed: int
    unsure: int
    referenced: bool

    @property
    def accounted(self) -> int:
        """The messages at the tier, however they ended there."""
        return self.loaded + self.quarantined

    @property
    def missing(self) -> int:
        """The messages that were sent and are not at the tier: waiting, lost, or unresolved."""
        return self.waiting + self.lost + self.unresolved

    @property
    def losses(self) -> int:
        """The messages that will never arrive: lost, dropped, failed, or abandoned."""
        return self.lost + self.dropped + self.failed + self.abandoned

    @property
    def completeness(self) -> float:
        """The share of attempted messages that arrived, 0 to 1; 1 if none was attempted."""
        absent = self.missing + self.dropped + self.failed
        return 1.0 if self.attempted <= 0 else (self.attempted - absent) / self.attempted

    @property
    def arrived_share(self) -> float | None:
        """The share that arrived of the messages whose fate is known, 0 to 1; None if none is.

        Messages that can still arrive, because they wait or have no outcome yet, are left out.
        """
        known = self.attempted - self.waiting - (self.unresolved - self.abandoned)
        return (known - self.losses) / known if known > 0 else None

    @property
    def complete(self) -> bool:
        """Return whether every attempted message arrived, and no other one."""
        return not (self.missing or self.dropped or self.failed or self.surplus or self.duplicated)

    @property
    def counts(self) -> tuple[object, ...]:
        """The counts alone, without what a position in the log or a proof adds to them."""
        sent = (self.attempted, self.delivered, self.dropped, self.failed)
        seen = (self.loaded, self.quarantined, self.late, self.removed, self.unsure)
        between = (self.missing, self.surplus + self.duplicated)
        return (self.topic, self.window_start, *sent, *seen, *between, self.referenced)

    def meets(self, share: float) -> bool:
        """Return whether at most 1 - `share` of the attempted messages are losses or duplicated."""
        allowed = allowed_of(self.attempted, share)
        return self.losses <= allowed and self.duplicated <= allowed

    def with_duplicates(self, proven: int) -> Balance:
        """Return it with `proven` messages of the surplus called duplicated."""
        n = min(proven, self.surplus)
        return replace(self, surplus=self.surplus - n, duplicated=self.duplicated + n)


_COUNTS = tuple(field.name for field in fields(Balance) if field.type == "int")
_read_counts = attrgetter(*_COUNTS)  # a page sums 400 topics by 36 windows


def allowed_of(attempted: int, share: float) -> float:
    """Return how many of the attempted messages may be wrong for an SLA of `share`."""
    # A hair more, because 1 - 0.8 is less than a fifth.
    return (1 - share) * max(0, attempted) + _ROUNDING_TOLERANCE


def balance_of(
    topic: str,
    window_start: int | None,
    sent: Mapping[str, int],
    seen: Mapping[str, int],
    *,
    referenced: bool,
) -> Balance:
    """Return the balance of the producers' counts and a tier's, both by column of the store."""
    counts = {name: sent[name] for name in PRODUCER_COUNTS}
    counts |= {name: seen[name] for name in TIER_COUNTS}
    return stated_balance(
        topic,
        window_start,
        states_of(counts, lambda n: max(0, n)),
        removed=seen["gone"],
        unsure=seen["unresolved"],
        referenced=referenced,
    )


def stated_balance(
    topic: str,
    window_start: int | None,
    states: Mapping[str, int],
    *,
    removed: int,
    unsure: int,
    referenced: bool,
) -> Balance:
    """Return the balance of these states, of which nothing is claimed without a reference."""
    claimed = {name: n if referenced or name in _SAME else 0 for name, n in states.items()}
    return Balance(
        topic=topic,
        window_start=window_start,
        removed=removed,
        unsure=unsure,
        referenced=referenced,
        **claimed,
    )


def total(balances: Iterable[Balance], topic: str = "") -> Balance:
    """Return the sum of balances over windows (and topics), under the name `topic`."""
    rows = list(balances)
    columns = zip(*map(_read_counts, rows), strict=True) if rows else [()] * len(_COUNTS)
    sums = dict(zip(_COUNTS, map(sum, columns), strict=True))
    referenced = all(row.referenced for row in rows)
    return Balance(topic=topic, window_start=None, referenced=referenced, **sums)
