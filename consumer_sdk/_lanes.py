"""Messages that wait for one handler, in one lane for each key.

Rules:

- A lane is handled in its order, by one call at a time. Messages without a key share no lane.
- A lane holds a few messages, and all lanes together a few for each call that may run. So however
  long one lane takes, there is room for others while a call is free.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from consumer_sdk._message import Message
from consumer_sdk._retry import Handler

LaneKey = tuple[str, int, bytes | int]  # topic, partition, and key, or else the offset
_FOR_EACH_CALL = 8  # messages that a lane holds; all lanes: so many for each call that may run


@dataclass(frozen=True, slots=True)
class Handed:
    """A message that is handled beside others; `ticket` is the consumer's name for it."""

    handler: Handler
    message: Message[Any]
    ticket: Any

    @property
    def lane(self) -> LaneKey:
        """The lane in which it is handled."""
        return lane_of(self.handler, self.message)


def lane_of(handler: Handler, message: Message[Any]) -> LaneKey:
    """Return the lane of a message: one for all messages of a handler that runs alone."""
    if handler.concurrency == 1:
        return message.topic, 0, b""
    key = message.offset if message.key is None else message.key
    return message.topic, message.partition, key


class Lanes:
    """The lanes of one handler, of which up to `calls` are handled at once."""

    def __init__(self, calls: int) -> None:
        self._calls, self._most = calls, calls * _FOR_EACH_CALL
        self._changed = threading.Condition()
        self._waiting: dict[LaneKey, deque[Handed]] = {}
        self._count = 0  # messages that wait, in all lanes

    def has_room(self, lane: LaneKey) -> bool:
        """Return whether a message may be added to a lane."""
        return self._count < self._most and len(self._waiting.get(lane, ())) < _FOR_EACH_CALL

    def has_much_room(self, lane: LaneKey) -> bool:
        """Return whether several messages may be added; that comes true if any call returns."""
        is_any_free = len(self._waiting) < self._calls  # then other lanes keep none waiting
        return (is_any_free or self._count <= self._most // 2) and (
            len(self._waiting.get(lane, ())) <= _FOR_EACH_CALL // 2
        )

    def wait_for_room(self, lane: LaneKey, seconds: float) -> bool:
        """Wait up to `seconds` until there is much room; return whether there is any."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.has_much_room(lane), seconds
            ) or self.has_room(lane)

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait up to `seconds` until no message waits and no call runs; return whether it is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def add(self, handed: Handed) -> bool:
        """Add a message; return whether its lane is new, so that the caller must handle it."""
        with self._changed:
            self._count += 1
            waiting = self._waiting.get(handed.lane)
            if waiting is not None:
                waiting.append(handed)
                return False
            self._waiting[handed.lane] = deque([handed])
            return True

    def next(self, lane: LaneKey) -> Handed | None:
        """Return the next message of a lane, for a call that is free; None ends the lane."""
        with self._changed:
            self._changed.notify_all()
            waiting = self._waiting[lane]
            if waiting:
                self._count -= 1
                return waiting.popleft()
            del self._waiting[lane]
            return None
