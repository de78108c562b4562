"""A ZooKeeper client for the event loop.

Rules:

- The threads of kazoo only schedule callbacks. Everything else runs in the loop.
- A request that times out, or loses its session or connection, raises UnreachableError. Its change
  may or may not have happened.
- ZooKeeper's own errors (no such node, ...) are raised as kazoo's exceptions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from headworks._zookeeper import ZooKeeperSession
from headworks._zookeeper.session import kazoo
from headworks.errors import UnreachableError

_T = TypeVar("_T")
_MAX_CONCURRENT = 200
_RETRY_SECONDS = 0.2
_MIN_TIMEOUT_SECONDS = 10.0  # seconds; a connection that is lost ends the waiting sooner


class AsyncSession:
    """A session with coroutines. `client` has the asynchronous methods of kazoo."""

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
        """Call an asynchronous method of the client, and return its result."""
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
        """Retry an idempotent request until it is answered, or `seconds` have passed."""
        deadline = self.loop.time() + seconds
        while True:
            try:
                return await question()
            except UnreachableError as error:
                if self.loop.time() > deadline:
                    raise UnreachableError(
                        f"{error.message} (tried for {seconds:.0f} s)",
                        fix="check that it runs with a majority of its servers",
                    ) from None
                await asyncio.sleep(_RETRY_SECONDS)

    def call_in_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, from a thread of kazoo."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(function, *arguments)

    async def children(self, path: str, watch: Callable[[Any], None] | None = None) -> list[str]:
        """Return the names of the children of a node; none if the node is missing."""
        try:
            found: list[str] = await self.ask(self.client.get_children_async, path, watch)
        except self.NoNode:
            return []
        return found

    async def value(
        self, path: str, watch: Callable[[Any], None] | None = None
    ) -> tuple[bytes, Any] | None:
        """Return the value and the stat of a node, None if it is missing."""
        try:
            value, stat = await self.ask(self.client.get_async, path, watch)
        except self.NoNode:
            return None
        return value, stat

    async def ensure(self, path: str) -> None:
        """Create a node and its parents, unless they exist."""
        try:
            await self.ask(self.client.create_async, path, b"")
        except self.NodeExists:
            return
        except self.NoNode:
            await self.ensure(path.rpartition("/")[0])
            await self.ensure(path)

    async def remove(self, path: str) -> None:
        """Delete a node with everything below it, unless it is gone."""
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
        """Send one request per item, at most 200 at a time; return the results in order."""
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
