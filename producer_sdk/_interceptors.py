"""Hooks into `send`: before encoding, after queueing, and at the delivery report.

They are the callback handlers of Kafka 0.7's producer.

Rules: `before_encode` runs in the caller. It may raise there, or return another event of the same
class. An exception of the other two is logged and stops nothing. All hooks must be quick, because
every event passes them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from producer_sdk._transport import OnDelivery

_log = logging.getLogger("headworks.producer")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery report of an event; without `error`, it is at `partition` and `offset`."""

    topic: str
    partition: int
    offset: int
    error: str | None


class Interceptor:
    """Hooks that do nothing; override some of them."""

    def before_encode(self, event: object) -> object:
        """Return the event to send: this one, changed or not, or another of its class."""
        return event

    def after_enqueue(self, event: object, *, taken: bool) -> None:
        """React to an event that was queued (`taken`) or dropped."""

    def on_delivery(self, event: object, delivery: Delivery) -> None:
        """React to an event that was delivered or has failed; called in another thread."""


class Interceptors:
    """Several interceptors, called in order."""

    def __init__(self, each: Sequence[Interceptor]) -> None:
        self._each = tuple(each)

    def before_encode(self, event: object) -> object:
        """See Interceptor."""
        for one in self._each:
            event = one.before_encode(event)
        return event

    def after_enqueue(self, event: object, *, taken: bool) -> None:
        """See Interceptor."""
        for one in self._each:
            try:
                one.after_enqueue(event, taken=taken)
            except Exception:
                _log.exception("%r failed after an event was queued", one)

    def on_delivery(self, event: object, delivery: Delivery) -> None:
        """See Interceptor."""
        for one in self._each:
            try:
                one.on_delivery(event, delivery)
            except Exception:
                _log.exception("%r failed when an event was delivered", one)

    def reporter(self, event: object, topic: str, report: OnDelivery | None) -> OnDelivery:
        """Return the callback for the delivery of an event; it calls `report` first."""

        def delivered(error: Any, message: Any) -> None:
            if report is not None:
                report(error, message)
            failed = error is not None
            self.on_delivery(
                event,
                Delivery(
                    topic,
                    -1 if failed else message.partition(),
                    -1 if failed else message.offset(),
                    error.str() if failed else None,
                ),
            )

        return delivered
