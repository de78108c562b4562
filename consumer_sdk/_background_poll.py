"""The thread that polls a group while the application handles a message.

A broker drops a member that does not poll for `max.poll.interval.ms`, and a rebalance waits for
each member's poll. An application that takes its time over one message can do neither.

Rules:

- The thread polls only if the application has not polled since the last tick, so it costs a quick
  application nothing.
- It stops when one message takes longer than `max.poll.interval.ms`: the group then gives the
  partitions of a stuck application to others.
- It does not keep its member alive: a consumer that nobody holds leaves its group.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from typing import Protocol

_TICK_SECONDS = 0.1
_JOIN_SECONDS = 1.0


class Pollable(Protocol):
    """A member that a background thread may poll."""

    polls: int  # how often the application has polled because it asked for a message

    @property
    def calls(self) -> int:
        """How often the application has asked for a message."""

    def poll_in_background(self) -> None:
        """Poll once without waiting, unless the application uses the client."""

    def leave_to_group(self) -> None:
        """Notice that nobody polls any more, and that the group may give the partitions away."""


class BackgroundPoll:
    """Polls a member whenever the application is busy, until `stop`."""

    def __init__(self, member: Pollable, max_busy_seconds: float) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=_run,
            args=(weakref.ref(member), self._stopping, max_busy_seconds),
            name="headworks-poll",
            daemon=True,
        )
        self._thread.start()
        _running.add(self)

    def stop(self) -> None:
        """End the thread; it may still finish a poll that takes long."""
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)


def _run(
    reference: weakref.ref[Pollable], stopping: threading.Event, max_busy_seconds: float
) -> None:
    calls, polls, since = -1, -1, 0.0
    while not stopping.wait(_TICK_SECONDS):
        member = reference()
        if member is None:
            return
        now = time.monotonic()
        if member.calls != calls:
            calls, since = member.calls, now
        if now - since >= max_busy_seconds:
            member.leave_to_group()
        elif member.polls == polls:
            member.poll_in_background()
        polls = member.polls
        del member


_running: weakref.WeakSet[BackgroundPoll] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop the threads before the interpreter ends, which would leave them inside librdkafka."""
    for each in list(_running):
        each.stop()
