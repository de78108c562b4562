"""The loop over messages: everything that `poll`, `commit`, and `close` suffice for.

Rules: a message whose handling raises out of the `with` block stays unprocessed. Nothing here waits
on the event loop.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Generic, Self, TypeVar

from consumer_sdk._message import Message
from headworks._in_thread import in_thread

T = TypeVar("T")
POLL_SECONDS = 0.5
CLOSE_SECONDS = 10.0


class MessageLoop(ABC, Generic[T]):
    """Iteration, context management, and the end of both, for sync and async programs."""

    _closed = _stopping = False

    def __iter__(self) -> Iterator[Message[T]]:
        """Yield messages until `stop` or `close`."""
        while not self._ended:
            yield from self._ready()
            message = None if self._ended else self.poll(POLL_SECONDS)
            if message is not None:
                yield message

    async def __aiter__(self) -> AsyncIterator[Message[T]]:
        """Yield messages without blocking the event loop."""
        while not self._ended:
            for ready in self._ready():
                yield ready
            message = None if self._ended else await self.apoll(POLL_SECONDS)
            if message is not None:
                yield message

    def _ready(self) -> Iterator[Message[T]]:
        """Return the next messages, up to one that needs waiting, or the end of the iteration."""
        while not self._ended and (message := self._buffered()) is not None:
            yield message

    def stop(self) -> None:
        """End the iteration after the current message; safe in signal handlers and threads."""
        self._stopping = True

    def stop_on_signals(
        self, *signals: int, default: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
    ) -> None:
        """Call `stop` on one of `signals` (SIGTERM, SIGINT); call this from the main thread."""
        for number in signals or default:
            signal.signal(number, lambda *_: self.stop())

    async def acommit(self) -> None:
        """Do what `commit` does, but let the event loop run meanwhile."""
        await in_thread(self.commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._drop_last()
        self.close()

    async def aclose(self, timeout: float = CLOSE_SECONDS) -> None:
        """Do what `close` does, but let the event loop run meanwhile."""
        await in_thread(self.close, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._drop_last()
        await self.aclose()

    @abstractmethod
    def poll(self, timeout: float) -> Message[T] | None:
        """Return the next message, or None if none arrives within `timeout` seconds."""

    @abstractmethod
    async def apoll(self, timeout: float) -> Message[T] | None:
        """Return what `poll` returns."""

    @abstractmethod
    def _buffered(self) -> Message[T] | None:
        """Return the next message if that needs no waiting."""

    @abstractmethod
    def commit(self) -> None:
        """Commit all messages up to the last one that was returned."""

    @abstractmethod
    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """End the iteration; safe to call twice."""

    @abstractmethod
    def _drop_last(self) -> None:
        """Leave the message whose processing raised unprocessed."""

    @property
    @abstractmethod
    def _ended(self) -> bool:
        """Whether the iteration has ended."""
