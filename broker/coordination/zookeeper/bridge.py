"""Asking ZooKeeper from the event loop.

Rules: kazoo's threads only hand over; everything else happens in the loop. A question that is not
answered in time, or whose session or connection is lost, raises UnreachableError: what it asked
for may have happened or not. ZooKeeper's own refusals (no such node, ...) come as kazoo's errors.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from headworks._zookeeper import ZooKeeperSession
from headworks._zookeeper.session import kazoo
from headworks.errors import UnreachableError

__all__ = ["Bridge"]

_T = TypeVar("_T")
_MAX_CONCURRENT = 200
_RETRY_SECONDS = 0.2
_MIN_TIMEOUT_SECONDS = 10.0  # seconds; a connection that is lost ends the waiting sooner


class Bridge:
    """A session as a coroutine sees it. `client` has kazoo's asynchronous methods."""

    def __init__(self, session: ZooKeeperSession, loop: asyncio.AbstractEventLoop) -> None:
        self.session = session
        self.client = session.client
        self.loop = loop
        exceptions = kazoo("exceptions")
        self.NoNode: type[Exception] = exceptions.NoNodeError
        self.NodeExists: type[Exception] = exceptions.NodeExistsError
        self.BadVersion: type[Exception] = exceptions.BadVersionError
        self.NotEmpty: type[Exception] = exceptions.NotEmptyError
        self._unreachable = (
            exceptions.ConnectionLoss,
            exceptions.ConnectionClosedError,
            exceptions.SessionExpiredError,
            exceptions.SessionMovedError,
            exceptions.OperationTimeoutError,
        )

    async def ask(self, start: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What one of the client's asynchronous methods answers."""
        done: asyncio.Future[Any] = self.loop.create_future()
        try:
            start(*arguments, **named).rawlink(
                lambda result: self.call_in_loop(_settle, done, result)
            )
            async with asyncio.timeout(max(self.session.timeout, _MIN_TIMEOUT_SECONDS)):
                return await done
        except (TimeoutError, *self._unreachable) as error:
            raise UnreachableError(
                f"ZooKeeper at {self.session.address} does not answer ({type(error).__name__})"
            ) from None

    async def retry(self, question: Callable[[], Awaitable[_T]], seconds: float) -> _T:
        """Ask what may be asked again until it is answered, or so many seconds are over."""
        deadline = self.loop.time() + seconds
        while True:
            try:
                return await question()
            except UnreachableError as error:
                if self.loop.time() > deadline:
                    raise UnreachableError(
                        f"{error.message} (tried for {seconds:.0f} s)",
                        fix="see that it runs, with a majority of its servers",
                    ) from None
                await asyncio.sleep(_RETRY_SECONDS)

    def call_in_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop; for kazoo's threads."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(function, *arguments)

    async def children(self, path: str, watch: Callable[[Any], None] | None = None) -> list[str]:
        """The names below a node; none if it is not there."""
        try:
            found: list[str] = await self.ask(self.client.get_children_async, path, watch)
        except self.NoNode:
            return []
        return found

    async def value(
        self, path: str, watch: Callable[[Any], None] | None = None
    ) -> tuple[bytes, Any] | None:
        """A node's value and its stat; None if it is not there."""
        try:
            value, stat = await self.ask(self.client.get_async, path, watch)
        except self.NoNode:
            return None
        return value, stat

    async def ensure(self, path: str) -> None:
        """Make a node and those above it, unless they are there."""
        try:
            await self.ask(self.client.create_async, path, b"")
        except self.NodeExists:
            return
        except self.NoNode:
            await self.ensure(path.rpartition("/")[0])
            await self.ensure(path)

    async def remove(self, path: str) -> None:
        """Remove a node with everything below it, unless it is gone."""
        try:
            await self.ask(self.client.delete_async, path)
        except self.NoNode:
            return
        except self.NotEmpty:
            names = await self.children(path)
            await self.each(self.remove, [f"{path}/{name}" for name in names])
            await self.remove(path)

    async def each(
        self, question: Callable[[str], Awaitable[_T]], items: Iterable[str]
    ) -> list[_T]:
        """Ask the same of many, some at a time; answers in their order."""
        todo = list(items)
        answers: list[_T] = []
        for start in range(0, len(todo), _MAX_CONCURRENT):
            part = todo[start : start + _MAX_CONCURRENT]
            answers += await asyncio.gather(*(question(item) for item in part))
        return answers


def _settle(done: asyncio.Future[Any], result: Any) -> None:
    if done.done():
        return
    if result.successful():
        done.set_result(result.value)
    else:
        done.set_exception(result.exception)
