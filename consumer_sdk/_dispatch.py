"""Hands messages to handlers that run beside each other by key, or that take batches.

Rules:

- Every message is handed over, and ended in any order. The consumer commits only what is behind
  everything that is finished.
- A message whose partition was lost before its handler began is not handled.
- The number of messages in memory is bounded: each handler has a few for each call that may run.
  So is the number of those that ended behind one that takes long.
- A stop lets the calls that run finish. It drops what waits, and the next member handles that.
- An error that no policy takes does the same, and is raised at the end.
"""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk._attempts import Attempts, StoppedError
from consumer_sdk._consumer import Consumer
from consumer_sdk._lanes import Handed, LaneKey, Lanes
from consumer_sdk._loop import POLL_SECONDS
from consumer_sdk._message import Message, Partition
from consumer_sdk._outcomes import Ending
from consumer_sdk._retry import Handler
from consumer_sdk._retrying_consumer import PutOff

_WAITING_FOR_EACH_CALL = 8  # messages in memory for each call of a handler that may run
_WINDOW_FOR_EACH_CALL = 1000  # messages of a partition that may end before one that takes long
_ROOM_SECONDS = 0.05  # how often a dispatcher that waits for room looks for a stop


@dataclass(slots=True)
class _OpenBatch:
    """A batch that grows until it has its size, or until `due`, a monotonic time."""

    due: float
    handed: list[Handed] = field(default_factory=list)


class Dispatch:
    """Hands out the messages of one run. Use it once, by `run` or `run_async`."""

    def __init__(
        self,
        consumer: Consumer[Any],
        source: PutOff,
        handlers: Mapping[type, Handler],
        attempts: Attempts,
        stopping: threading.Event,
    ) -> None:
        self._consumer, self._source, self._handlers = consumer, source, handlers
        self._attempts, self._stopping = attempts, stopping
        self._lanes = Lanes()
        self._batches: dict[Handler, _OpenBatch] = {}
        self._writing = asyncio.Lock()  # so that dead letters take one thread, and others can poll
        self._error: BaseException | None = None  # the first that ends the run

    def run(self) -> None:
        """Hand out messages until the consumer stops; the handlers are plain functions."""
        with ExitStack() as stack:
            workers = {
                handler: _Workers(self, handler, stack)
                for handler in self._handlers.values()
                if handler.batch is None
            }
            while self._goes_on:
                message = self._source.next(self._patience())
                if message is not None:
                    while self._is_far_ahead(message):
                        self._stopping.wait(_ROOM_SECONDS)
                    handed = self._hand_over(message)
                    if handed.handler.batch is None:
                        workers[handed.handler].add(handed)
                    elif (full := self._collect(handed)) is not None:
                        self.handle(full)
                for batch in self._due():
                    self.handle(batch)
            for batch in self._rest():
                self.handle(batch)
        self._raise()

    async def run_async(self) -> None:
        """Do what `run` does in an event loop, with plain and `async` handlers."""
        async with AsyncExitStack() as stack:
            workers = {
                handler: _Tasks(self, handler, stack)
                for handler in self._handlers.values()
                if handler.batch is None
            }
            while self._goes_on:
                message = await self._source.next_async(self._patience())
                if message is not None:
                    while self._is_far_ahead(message):
                        await asyncio.sleep(_ROOM_SECONDS)
                    handed = self._hand_over(message)
                    if handed.handler.batch is None:
                        await workers[handed.handler].add(handed)
                    elif (full := self._collect(handed)) is not None:
                        await self.handle_async(full)
                for batch in self._due():
                    await self.handle_async(batch)
            for batch in self._rest():
                await self.handle_async(batch)
        self._raise()

    @property
    def lanes(self) -> Lanes:
        """The messages that wait for a handler."""
        return self._lanes

    @property
    def drops(self) -> bool:
        """Whether messages that wait are dropped."""
        return self._stopping.is_set()

    def handle(self, batch: list[Handed]) -> None:
        """Handle messages by one call, and end them; an error ends the run."""
        try:
            ours = self._begin(batch)
            if ours:
                self._end(ours, self._attempts.handle(*_call_of(ours)))
        except StoppedError:
            return
        except BaseException as error:
            self._fail(error)

    async def handle_async(self, batch: list[Handed]) -> None:
        """Do what `handle` does, but let the event loop run meanwhile."""
        try:
            ours = self._begin(batch)
            if ours:
                endings = await self._attempts.handle_async(*_call_of(ours))
                if any(each.writes for each in endings):
                    async with self._writing:
                        await asyncio.to_thread(self._end, ours, endings)
                else:
                    self._end(ours, endings)
        except StoppedError:
            return
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    @property
    def _goes_on(self) -> bool:
        return self._error is None and not self._consumer._ended

    def _is_far_ahead(self, message: Message[Any]) -> bool:
        """Return whether a message must wait for one of its partition that takes long."""
        handler = self._handlers[type(message.event)]
        if handler.batch is not None or self.drops:  # a batch has its own size
            return False
        limit = handler.concurrency * _WINDOW_FOR_EACH_CALL
        return self._consumer._window(Partition(message.topic, message.partition)) >= limit

    def _hand_over(self, message: Message[Any]) -> Handed:
        return Handed(self._handlers[type(message.event)], message, self._consumer._hand_over())

    def _begin(self, batch: Iterable[Handed]) -> list[Handed]:
        """Return the messages that are still ours, unless they are dropped."""
        if self.drops:
            return []
        return [each for each in batch if self._consumer._begin(each.ticket)]

    def _end(self, batch: list[Handed], endings: list[Ending]) -> None:
        for handed, ending in zip(batch, endings, strict=True):
            self._consumer._end(handed.ticket, ending)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self._stopping.set()  # it ends the pauses of other handlers
        self._consumer.stop()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _collect(self, handed: Handed) -> list[Handed] | None:
        """Add a message to the batch of its handler; return that if it is full."""
        handler = handed.handler
        assert handler.batch is not None
        batch = self._batches.get(handler)
        if batch is None:
            batch = _OpenBatch(time.monotonic() + handler.batch.seconds)
            self._batches[handler] = batch
        batch.handed.append(handed)
        if len(batch.handed) < handler.batch.size:
            return None
        return self._batches.pop(handler).handed

    def _due(self) -> list[list[Handed]]:
        """Take the batches whose time has come."""
        now = time.monotonic()
        over = [handler for handler, batch in self._batches.items() if batch.due <= now]
        return [self._batches.pop(handler).handed for handler in over]

    def _rest(self) -> list[list[Handed]]:
        """Take all batches; `_begin` drops them after a stop."""
        rest = [batch.handed for batch in self._batches.values()]
        self._batches.clear()
        return rest

    def _patience(self) -> float:
        """Return how long a poll may wait: until the next batch is due, or it looks for a stop."""
        now = time.monotonic()
        return min((POLL_SECONDS, *(max(0.0, each.due - now) for each in self._batches.values())))


def _call_of(batch: list[Handed]) -> tuple[Handler, list[Message[Any]]]:
    return batch[0].handler, [each.message for each in batch]


class _Workers:
    """The threads that call one handler."""

    def __init__(self, dispatch: Dispatch, handler: Handler, stack: ExitStack) -> None:
        self._dispatch = dispatch
        name = "headworks-handler"
        pool = ThreadPoolExecutor(handler.concurrency, thread_name_prefix=name)
        self._pool = stack.enter_context(pool)  # whose end waits for the calls that run
        self._room = threading.Semaphore(handler.concurrency * _WAITING_FOR_EACH_CALL)

    def add(self, handed: Handed) -> None:
        """Let a thread handle a message, after those before it in its lane."""
        while not self._room.acquire(timeout=_ROOM_SECONDS):
            if self._dispatch.drops:
                return
        if self._dispatch.lanes.add(handed):
            self._pool.submit(self._drain, handed.lane)

    def _drain(self, lane: LaneKey) -> None:
        while (handed := self._dispatch.lanes.next(lane)) is not None:
            self._dispatch.handle([handed])
            self._room.release()


class _Tasks:
    """The tasks that call one handler."""

    def __init__(self, dispatch: Dispatch, handler: Handler, stack: AsyncExitStack) -> None:
        self._dispatch = dispatch
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = asyncio.Semaphore(handler.concurrency)
        self._room = asyncio.Semaphore(handler.concurrency * _WAITING_FOR_EACH_CALL)
        stack.push_async_callback(self._wait)

    async def add(self, handed: Handed) -> None:
        """Let a task handle a message, after those before it in its lane."""
        while self._room.locked():
            if self._dispatch.drops:
                return
            await asyncio.wait(self._tasks, timeout=_ROOM_SECONDS, return_when=FIRST_COMPLETED)
        await self._room.acquire()
        if self._dispatch.lanes.add(handed):
            task = asyncio.create_task(self._drain(handed.lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drain(self, lane: LaneKey) -> None:
        while (handed := self._dispatch.lanes.next(lane)) is not None:
            async with self._calls:
                await self._dispatch.handle_async([handed])
            self._room.release()

    async def _wait(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
