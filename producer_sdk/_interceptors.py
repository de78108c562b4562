"""What an application hooks into `send`: before the event is encoded, after it is queued, when its
fate is known (the callback handlers of Kafka 0.7's producer).

Rules: `before_encode` runs in the caller and may raise there, or give another event of the same
class; what the other two raise is logged and ends nothing. They run on the path of every event, so
they must be quick.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Delivery", "Interceptor", "Interceptors"]

_log = logging.getLogger("headworks.producer")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of an event; `error` is None if the broker has it at `partition`, `offset`."""

    topic: str
    partition: int
    offset: int
    error: str | None


class Interceptor:
    """Override what is needed; each does nothing by itself."""

    def before_encode(self, event: object) -> object:
        """The event to send: this one, changed or not, or another of its class."""
        return event

    def after_enqueue(self, event: object, *, taken: bool) -> None:
        """`send` took the event, or dropped it."""

    def on_delivery(self, event: object, delivery: Delivery) -> None:
        """The broker acknowledged the event, or it failed for good; called in another thread."""


class Interceptors:
    """Several, in order."""

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
