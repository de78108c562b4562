"""Messages that wait for a handler, in one lane for each key.

Rules:

- A lane is handled in its order, by one call at a time. Messages without a key share no lane.
- The number of messages that wait is bounded by the caller.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from consumer_sdk._message import Message
from consumer_sdk._retry import Handler

LaneKey = tuple[str, int, bytes | int]  # topic, partition, and key, or else the offset


@dataclass(frozen=True, slots=True)
class Handed:
    """A message that is handled beside others; `ticket` is the consumer's name for it."""

    handler: Handler
    message: Message[Any]
    ticket: Any

    @property
    def lane(self) -> LaneKey:
        """The lane in which it is handled: one for all messages of a handler that runs alone."""
        message = self.message
        if self.handler.concurrency == 1:
            return message.topic, 0, b""
        key = message.offset if message.key is None else message.key
        return message.topic, message.partition, key


class Lanes:
    """The lanes of one application."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[LaneKey, deque[Handed]] = {}

    def add(self, handed: Handed) -> bool:
        """Add a message; return whether its lane is new, so that the caller must handle it."""
        with self._lock:
            waiting = self._waiting.get(handed.lane)
            if waiting is not None:
                waiting.append(handed)
                return False
            self._waiting[handed.lane] = deque([handed])
            return True

    def next(self, lane: LaneKey) -> Handed | None:
        """Return the next message of a lane; None ends the lane."""
        with self._lock:
            waiting = self._waiting[lane]
            if waiting:
                return waiting.popleft()
            del self._waiting[lane]
            return None
