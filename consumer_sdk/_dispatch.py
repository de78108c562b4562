"""Hands messages to handlers that run beside each other by key, or that take batches.

Rules:

- Every message is handed over, and ended in any order. The consumer commits only what is behind
  everything that is finished.
- A message whose partition was lost before its handler began is not handled.
- The number of messages in memory is bounded: each handler has a few for each call that may run.
  So is the number of those that ended behind one that takes long.
- A partition whose next message finds no room is paused. The consumer goes on polling, for the
  other partitions and for its place in the group, however long a handler of single messages takes.
- A stop lets the calls that run finish. It drops what waits, and the next member handles that.
- An error that no policy takes does the same, and is raised at the end.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk._attempts import Attempts, StoppedError
from consumer_sdk._calls import ROOM_SECONDS, Tasks, Workers, wait_for_all, wake
from consumer_sdk._consumer import Consumer
from consumer_sdk._handler_table import HandlerTable
from consumer_sdk._held_back import HeldBack
from consumer_sdk._lanes import Handed, LaneKey, Lanes, lane_of
from consumer_sdk._loop import POLL_SECONDS
from consumer_sdk._message import Message
from consumer_sdk._outcomes import Ending
from consumer_sdk._retry import Handler
from consumer_sdk._retrying_consumer import PutOff
from headworks._in_thread import in_thread

_WINDOW_FOR_EACH_CALL = 1000  # messages of a partition that may end before one that takes long
_HELD_POLL_SECONDS = 0.05  # how often a dispatcher looks whether a paused partition may go on


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
        handlers: HandlerTable,
        attempts: Attempts,
        stopping: threading.Event,
    ) -> None:
        self._consumer, self._source, self._handlers = consumer, source, handlers
        self._attempts, self._stopping = attempts, stopping
        self._lanes = {
            handler: Lanes(handler.concurrency)
            for handler in handlers.values()
            if handler.batch is None
        }
        self._held = HeldBack(consumer, self._has_much_room)
        self._batches: dict[Handler, _OpenBatch] = {}
        self._writing = asyncio.Lock()  # so that dead letters take one thread, and others can poll
        self._error: BaseException | None = None  # the first that ends the run

    def run(self) -> None:
        """Hand out messages until the consumer stops; the handlers are plain functions."""
        with ExitStack() as stack:
            workers = {
                each: Workers(self.handle_one, of, each.concurrency, stack)
                for each, of in self._lanes.items()
            }
            while self._goes_on:
                if (place := self._held.next_to_go_on()) is not None:
                    self._held.go_on(place)
                message = self._source.ready()
                if message is None:
                    wake(workers)
                    message = self._source.next(self._patience())
                if message is not None:
                    handler, lane = self._place_of(message)
                    if handler.batch is not None:
                        if full := self._collect(self._hand_over(handler, message, lane)):
                            wake(workers)
                            self.handle(full)
                    elif not self._must_wait(handler, message, lane):
                        workers[handler].add(self._hand_over(handler, message, lane))
                    else:
                        wake(workers)
                        if self._wait(handler, message, lane):
                            workers[handler].add(self._hand_over(handler, message, lane))
                        else:
                            self._held.hold(handler, message)
                for batch in self._due() if self._batches else ():
                    wake(workers)
                    self.handle(batch)
            wake(workers)
            for batch in self._rest():
                self.handle(batch)
            for lanes in self._lanes.values():
                while not lanes.wait_until_empty(POLL_SECONDS):
                    self._consumer._stay()
        self._raise()

    async def run_async(self) -> None:
        """Do what `run` does in an event loop, with plain and `async` handlers."""
        async with AsyncExitStack() as stack:
            workers = {
                each: Tasks(self.handle_one_async, of, each.concurrency)
                for each, of in self._lanes.items()
            }
            buffered = self._source.buffered
            stack.push_async_callback(wait_for_all, workers.values())
            while self._goes_on:
                if (place := self._held.next_to_go_on()) is not None:
                    wake(workers)
                    await in_thread(self._held.go_on, place)
                message = buffered()
                if message is None:
                    wake(workers)
                    message = await self._source.next_async(self._patience())
                if message is not None:
                    handler, lane = self._place_of(message)
                    if handler.batch is not None:
                        if full := self._collect(self._hand_over(handler, message, lane)):
                            wake(workers)
                            await self.handle_async(full)
                    elif not self._must_wait(handler, message, lane):
                        workers[handler].add(self._hand_over(handler, message, lane))
                    else:
                        wake(workers)
                        may_wait = self._may_wait(handler, message)
                        if may_wait and await workers[handler].wait(lane):
                            workers[handler].add(self._hand_over(handler, message, lane))
                        else:
                            await in_thread(self._held.hold, handler, message)
                for batch in self._due() if self._batches else ():
                    wake(workers)
                    await self.handle_async(batch)
            wake(workers)
            for batch in self._rest():
                await self.handle_async(batch)
            for tasks in workers.values():
                while not await tasks.wait_until_empty(POLL_SECONDS):
                    await in_thread(self._consumer._stay)
        self._raise()

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
        except BaseException as error:
            self._fail(error)

    async def handle_async(self, batch: list[Handed]) -> None:
        """Do what `handle` does, but let the event loop run meanwhile."""
        try:
            ours = self._begin(batch)
            if ours:
                endings = await self._attempts.handle_async(*_call_of(ours))
                await self._end_async(ours, endings)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    def handle_one(self, handed: Handed) -> None:
        """Do what `handle` does with one message of a handler of single ones, in fewer steps."""
        consumer, ticket = self._consumer, handed.ticket
        try:
            if not self._stopping.is_set() and consumer._begin(ticket):
                ending = self._attempts.handle_one(handed.handler, handed.message)
                consumer._end(ticket, ending)
        except BaseException as error:
            self._fail(error)

    async def handle_one_async(self, handed: Handed) -> None:
        """Do what `handle_async` does with one message of a handler of single ones."""
        consumer, ticket = self._consumer, handed.ticket
        try:
            if not self._stopping.is_set() and consumer._begin(ticket):
                ending = await self._attempts.handle_one_async(handed.handler, handed.message)
                await self._end_async([handed], [ending])
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    @property
    def _goes_on(self) -> bool:
        return self._error is None and not self._consumer._ended

    def _place_of(self, message: Message[Any]) -> tuple[Handler, LaneKey]:
        """Return the handler of a message, and the lane in which it waits for that."""
        handler = self._handlers.get(type(message.event)) or self._handlers.other(message)
        return handler, lane_of(handler, message)

    def _must_wait(self, handler: Handler, message: Message[Any], lane: LaneKey) -> bool:
        """Return whether there is no room for a message; a stop drops what waits anyway."""
        return not (
            (self._lanes[handler].has_room(lane) and self._is_near(handler, message)) or self.drops
        )

    def _may_wait(self, handler: Handler, message: Message[Any]) -> bool:
        """Return whether all partitions may wait a moment, until there is room for a message."""
        return self._is_near(handler, message) and not self._held.waits_for(handler)

    def _wait(self, handler: Handler, message: Message[Any], lane: LaneKey) -> bool:
        return self._may_wait(handler, message) and (
            self._lanes[handler].wait_for_room(lane, ROOM_SECONDS)
        )

    def _is_near(self, handler: Handler, message: Message[Any]) -> bool:
        """Return whether a message is not far behind one of its partition that takes long."""
        limit = handler.concurrency * _WINDOW_FOR_EACH_CALL
        return self._consumer._window((message.topic, message.partition)) < limit

    def _has_much_room(self, handler: Handler, message: Message[Any]) -> bool:
        has_room = self._lanes[handler].has_much_room(lane_of(handler, message))
        return (has_room and self._is_near(handler, message)) or self.drops

    def _hand_over(self, handler: Handler, message: Message[Any], lane: LaneKey) -> Handed:
        return Handed(handler, message, self._consumer._hand_over(), lane)

    def _begin(self, batch: Iterable[Handed]) -> list[Handed]:
        """Return the messages that are still ours, unless they are dropped."""
        if self.drops:
            return []
        return [each for each in batch if self._consumer._begin(each.ticket)]

    def _end(self, batch: list[Handed], endings: list[Ending]) -> None:
        for handed, ending in zip(batch, endings, strict=True):
            self._consumer._end(handed.ticket, ending)

    async def _end_async(self, batch: list[Handed], endings: list[Ending]) -> None:
        if any(each.writes for each in endings):
            async with self._writing:
                await in_thread(self._end, batch, endings)
        else:
            self._end(batch, endings)

    def _fail(self, error: BaseException) -> None:
        """End the run with an error, unless that is its stop."""
        if isinstance(error, StoppedError):
            return
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
        """Return how long a poll may wait: until a batch is due, or it looks for room or a stop."""
        most = _HELD_POLL_SECONDS if self._held else POLL_SECONDS
        now = time.monotonic()
        return min((most, *(max(0.0, each.due - now) for each in self._batches.values())))


def _call_of(batch: list[Handed]) -> tuple[Handler, list[Message[Any]]]:
    return batch[0].handler, [each.message for each in batch]
