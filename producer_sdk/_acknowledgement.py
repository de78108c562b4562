"""The wait for the acknowledgement of one event: in a thread, or in an event loop.

Rule: an event loop waits without a thread, so a task that is cancelled leaves none behind.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from headworks.errors import HeadworksError


class DeliveryError(HeadworksError):
    """`send_and_wait` did not get the acknowledgement of the broker."""


class Acknowledgement:
    """The outcome of one event; `report` is the callback for its delivery, of any thread."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._outcome: tuple[Any, Any]

    def report(self, error: Any, message: Any) -> None:
        """Take the error of a delivery, or the message with its place."""
        self._outcome = error, message
        self._done.set()

    def wait(self, timeout: float, *, queued: bool) -> tuple[int, int]:
        """Return the (partition, offset) of an event that was `queued`; DeliveryError if none."""
        _check_queued(queued=queued)
        if not self._done.wait(timeout):
            raise _late(timeout)
        return _place(*self._outcome)


class AsyncAcknowledgement:
    """The same for the event loop that makes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[tuple[Any, Any]] = self._loop.create_future()

    def report(self, error: Any, message: Any) -> None:
        """Do what `Acknowledgement.report` does."""
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._take, error, message)

    async def wait(self, timeout: float, *, queued: bool) -> tuple[int, int]:
        """Do what `Acknowledgement.wait` does, but let the event loop run meanwhile."""
        _check_queued(queued=queued)
        try:
            return _place(*await asyncio.wait_for(self._outcome, timeout))
        except TimeoutError:
            raise _late(timeout) from None

    def _take(self, error: Any, message: Any) -> None:
        if not self._outcome.done():
            self._outcome.set_result((error, message))


def _check_queued(*, queued: bool) -> None:
    if not queued:
        raise DeliveryError("the event was dropped: the queue is full", fix="try again later")


def _late(timeout: float) -> DeliveryError:
    return DeliveryError(f"the broker did not acknowledge the event within {timeout} s")


def _place(error: Any, message: Any) -> tuple[int, int]:
    if error is not None:
        raise DeliveryError(f"the event was not delivered: {error.str()}")
    return message.partition(), message.offset()
