"""Messages that wait for one handler, in one lane for each key.

Rules:

- A lane is handled in its order, by one call at a time. Messages without a key share no lane.
- One thread is woken at a time, and wakes the next one. Quick calls then need no other thread.
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
    lane: LaneKey


def lane_of(handler: Handler, message: Message[Any]) -> LaneKey:
    """Return the lane of a message: one for all messages of a handler that runs alone."""
    if handler.concurrency == 1:
        return message.topic, 0, b""
    key = message.offset if message.key is None else message.key
    return message.topic, message.partition, key


class Lanes:
    """The lanes of one handler, of which up to `calls` are handled at once.

    Any thread may call any method. The threads that handle messages call `take`, and the tasks of
    an event loop `next`.
    """

    def __init__(self, calls: int) -> None:
        self._calls, self._most = calls, calls * _FOR_EACH_CALL
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # messages are ready
        self._changed = threading.Condition(self._lock)  # for the dispatcher
        # The messages that wait, of each lane that has any or of which one is handled.
        self._waiting: dict[LaneKey, deque[Handed]] = {}
        self._ready: deque[LaneKey] = deque()  # with messages that wait, and none that is handled
        self._count = 0  # messages that wait, in all lanes
        self._wanted: LaneKey | None = None  # for which the dispatcher waits
        self._idle = 0  # threads that wait for a message
        self._is_waking = False  # whether a thread was woken and has not run yet
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether a call that is free has a message to handle."""
        return bool(self._ready)

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
        with self._lock:
            self._wanted = lane
            found = self._changed.wait_for(lambda: self.has_much_room(lane), seconds)
            self._wanted = None
            return found or self.has_room(lane)

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait up to `seconds` until no message waits and no call runs; return whether it is so."""
        with self._lock:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def add(self, handed: Handed) -> None:
        """Add a message to its lane; `wake` lets a thread handle it."""
        with self._lock:
            self._count += 1
            waiting = self._waiting.get(handed.lane)
            if waiting is not None:
                waiting.append(handed)
            else:
                self._waiting[handed.lane] = deque([handed])
                self._ready.append(handed.lane)

    def wake(self) -> bool:
        """Wake a thread if a message is ready; return whether all threads have work already."""
        with self._lock:
            if not self._ready or self._is_waking:
                return False
            self._is_waking = bool(self._idle)
            self._work.notify()
            return not self._idle

    def next(self, done: Handed | None) -> Handed | None:
        """Return the first message of a lane, of which the call has handled `done`; None if none.

        The longest that waits is first. So no lane keeps a call for itself.
        """
        with self._lock:
            self._end(done)
            return self._first()

    def take(self, done: Handed | None) -> Handed | None:
        """Do what `next` does, but wait for a message; None after `close`, once none is ready."""
        with self._lock:
            self._end(done)
            while not self._ready and not self._is_closed:
                self._idle += 1
                self._work.wait()
                self._idle -= 1
                self._is_waking = False
            return self._first()

    def close(self) -> None:
        """Let `take` end, once no message is ready."""
        with self._lock:
            self._is_closed = True
            self._work.notify_all()

    def _first(self) -> Handed | None:
        if not self._ready:
            return None
        self._count -= 1
        first = self._waiting[self._ready.popleft()].popleft()
        self._tell()
        return first

    def _end(self, done: Handed | None) -> None:
        if done is None:
            return
        if self._waiting[done.lane]:
            self._ready.append(done.lane)
            return
        del self._waiting[done.lane]
        self._tell()

    def _tell(self) -> None:
        """Wake the dispatcher if what it waits for is there."""
        if not self._waiting or (self._wanted is not None and self.has_much_room(self._wanted)):
            self._changed.notify_all()
