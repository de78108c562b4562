"""The events of a producer by outcome since it was made, and the log lines about those it lost.

Rules: a drop, a timeout, or a rejection is logged within the next poll, by its reason. A reason
that lasts is logged once a minute, with the number of events since the last line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headworks._audit_counting.outcomes import (
    ATTEMPTED,
    BROKER_ERROR,
    CLOSED,
    DELIVERED,
    FAILED,
    OUTCOMES,
    QUEUE_FULL,
    TIMED_OUT,
    TOO_LARGE,
)
from headworks._kafka.trouble_log import LOG_SECONDS, BrokerTrouble

_log = logging.getLogger("headworks.producer")
_CALLBACK_SECONDS = 1.0
_DROPPED = (QUEUE_FULL, TOO_LARGE, BROKER_ERROR, TIMED_OUT, CLOSED)
_TEXTS = {
    FAILED: "rejected by the broker",
    QUEUE_FULL: "dropped, because the queue is full",
    TOO_LARGE: "dropped, because they are larger than message.max.bytes",
    BROKER_ERROR: "dropped, because the client refused them",
    TIMED_OUT: "dropped, because they were not delivered within message.timeout.ms",
}


@dataclass(frozen=True, slots=True)
class ProducerTotals:
    """Numbers of events: attempted = delivered + failed + all that were dropped + queued.

    `dropped` is by reason. `queued` includes spilled events.
    """

    attempted: int
    delivered: int
    failed: int
    dropped: Mapping[str, int]
    queued: int


def totals_of(counts: Sequence[int]) -> ProducerTotals:
    """Return the totals of counts in the order of OUTCOMES."""
    dropped = {OUTCOMES[at].partition(":")[2]: counts[at] for at in _DROPPED}
    resolved = counts[DELIVERED] + counts[FAILED] + sum(dropped.values())
    return ProducerTotals(
        counts[ATTEMPTED],
        counts[DELIVERED],
        counts[FAILED],
        dropped,
        max(0, counts[ATTEMPTED] - resolved),
    )


NO_EVENTS = totals_of([0] * len(OUTCOMES))
OnLoss = Callable[[ProducerTotals], None]


class LossWatch:
    """Logs lost events and brokers that are away; only the polling thread uses it.

    `lost` holds the numbers of undelivered events, in the order of OUTCOMES. `totals` returns all
    counts in that order. `on_loss` receives the totals after a loss, at most once a second.
    """

    def __init__(
        self,
        lost: Sequence[int],
        totals: Callable[[], Sequence[int]],
        trouble: BrokerTrouble,
        on_loss: OnLoss | None,
    ) -> None:
        self._lost = lost
        self._totals = totals
        self._trouble = trouble
        self._on_loss = on_loss
        self._logged = list(lost)  # as far as log lines name them
        self._called, self._due = list(lost), 0.0  # as far as the callback knows, and its next time
        self._delivered: int | None = None  # when the last broker went away

    def look(self, *, last: bool = False) -> None:
        """Report the changes; with `last`, also those that follow a line of this minute."""
        for outcome, text in _TEXTS.items():
            more = self._lost[outcome] - self._logged[outcome]
            if more and (self._trouble.log.is_due(OUTCOMES[outcome]) or last):
                self._logged[outcome] += more
                _log.warning("events lost: %d %s", more, text)
        if self._on_loss is not None and (last or time.monotonic() >= self._due):
            self._call(self._on_loss)
        if self._trouble.down_since is not None:
            self._look_at_brokers(self._trouble.down_since)

    def _call(self, on_loss: OnLoss) -> None:
        lost = list(self._lost)
        if lost == self._called:
            return
        self._due, self._called = time.monotonic() + _CALLBACK_SECONDS, lost
        try:
            on_loss(totals_of(self._totals()))
        except Exception:
            _log.exception("on_loss failed")

    def _look_at_brokers(self, since: float) -> None:
        counts, away = self._totals(), time.monotonic() - since
        if self._delivered is None:
            self._delivered = counts[DELIVERED]
        address = self._trouble.address
        if counts[DELIVERED] > self._delivered or self._trouble.has_answered:
            _log.warning("brokers %s answer again, after %.0f s", address, away)
            self._trouble.down_since = self._delivered = None
            self._trouble.has_answered = False
        elif away >= LOG_SECONDS and self._trouble.log.is_due("away"):
            queued = totals_of(counts).queued
            _log.warning(
                "no broker at %s has answered for %.0f s: queued events: %d", address, away, queued
            )
