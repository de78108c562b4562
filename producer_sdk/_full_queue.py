"""A counted message that librdkafka's full queue does not take, and the event loop's wait for room.

Rules: the message is counted once, and ends once: taken, or dropped. A task that is cancelled drops
it, so nothing is sent later. No thread waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TELL_WHEN_FULL_MS = -1
"""Instead of the milliseconds to wait for room: raise FullQueueError, and leave the wait to me."""

_PAUSE_SECONDS = 0.005


class FullQueueError(Exception):
    """The queue has no room now; the message is counted, and `waiting` must end it."""

    def __init__(self, waiting: WaitingMessage) -> None:
        super().__init__("the queue is full")
        self.waiting = waiting


class WaitingMessage:
    """A message whose attempt is counted.

    `again` returns whether the queue took it, or raises FullQueueError; False counts the drop.
    `drop` counts the drop as well.
    """

    def __init__(self, again: Callable[[], bool], drop: Callable[[], None]) -> None:
        self._again = again
        self._drop = drop
        self.ended: Callable[..., None] | None = None  # is called with `taken`

    async def wait(self, wait_ms: int) -> bool:
        """Try again until the queue takes it, or drop it; return whether it was taken."""
        deadline = time.monotonic() + wait_ms / 1000
        taken: bool | None = None
        try:
            while taken is None and time.monotonic() < deadline:
                await asyncio.sleep(_PAUSE_SECONDS)
                taken = self._try()
        finally:
            if taken is None:
                self._drop()
            if self.ended is not None:
                self.ended(taken=bool(taken))
        return bool(taken)

    def _try(self) -> bool | None:
        try:
            return self._again()
        except FullQueueError:
            return None
