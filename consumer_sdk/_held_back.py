"""Partitions that wait until a handler has room for their next message.

Rules:

- A partition that waits is paused alone: the consumer goes on polling, so that other partitions are
  handled and the member stays in its group.
- Its next message is returned to the consumer, which fetches it again. So a partition goes on only
  when there is room for several messages.
- The partition that has waited longest goes on first.
- A partition that waits long is logged, once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from consumer_sdk._last_message import LastMessage
from consumer_sdk._message import Message, Partition
from consumer_sdk._retry import Handler

_log = logging.getLogger("headworks.consumer")
_LONG_SECONDS = 60.0


@dataclass(slots=True)
class _Held:
    message: Message[Any]
    handler: Handler
    since: float  # a monotonic time
    is_logged: bool = False


class HeldBack:
    """The partitions of a consumer that wait; `may_go_on` says whether one need not any more."""

    def __init__(
        self, consumer: LastMessage[Any], may_go_on: Callable[[Handler, Message[Any]], bool]
    ) -> None:
        self._consumer, self._may_go_on = consumer, may_go_on
        self._partitions: dict[Partition, _Held] = {}  # in the order in which they were paused

    def __len__(self) -> int:
        return len(self._partitions)

    def waits_for(self, handler: Handler) -> bool:
        """Return whether any partition waits for a handler."""
        return any(held.handler is handler for held in self._partitions.values())

    def hold(self, handler: Handler, message: Message[Any]) -> None:
        """Pause the partition of the message that the consumer returned last."""
        self._consumer._return_last()
        place = Partition(message.topic, message.partition)
        self._partitions[place] = _Held(message, handler, time.monotonic())

    def next_to_go_on(self) -> Partition | None:
        """Return the first partition that may go on; log those that wait long."""
        for place, held in self._partitions.items():
            if self._may_go_on(held.handler, held.message):
                return place
            if not held.is_logged and time.monotonic() - held.since >= _LONG_SECONDS:
                held.is_logged = True
                _log.warning(
                    "%s partition %d waits at offset %d for a handler with no room; if that never"
                    " returns, the group never commits past it",
                    *(place.topic, place.partition, held.message.offset),
                )
        return None

    def go_on(self, place: Partition) -> None:
        """Resume a partition that waits."""
        del self._partitions[place]
        self._consumer.resume([place])
