"""Handlers of events: one function for each class, retried in place, with an end for what fails.

Rules:

- A message is processed when its handler returned, or when its failure was dealt with. A handler
  that is stopped in a pause between two attempts leaves its message to the next member.
- By default one message at a time is handled, in the order of its partition. With `concurrency` or
  batches, `_dispatch` hands messages out.
- If every handler is a plain function, no event loop is started. Beside a coroutine function, plain
  functions run in a thread.
- An error that no policy takes ends `run`, or is logged at once and raised when `lifespan` ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import FrameType
from typing import Any, TypeVar, Unpack

from consumer_sdk._arguments import check_group
from consumer_sdk._attempts import Attempts, StoppedError
from consumer_sdk._consumer import Consumer
from consumer_sdk._dispatch import Dispatch
from consumer_sdk._handler_table import HandlerTable, event_class_of
from consumer_sdk._loop import POLL_SECONDS
from consumer_sdk._message import Message
from consumer_sdk._options import ConsumerOptions
from consumer_sdk._outcomes import HANDLED, no_totals
from consumer_sdk._poison import OnPoison
from consumer_sdk._retry import BatchLimits, Handler, Retries, handler_of
from consumer_sdk._retrying_consumer import PutOff, RetryingConsumer
from consumer_sdk._tracing import traced
from headworks._choice import choice
from headworks._in_thread import in_thread
from headworks._stop_event import StopEvent
from headworks.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger("headworks.consumer")


class Consumers:
    """Handlers of several event classes, as one member of `group`.

    `options` are those of Consumer. `on_poison` is for messages that cannot be decoded; each
    handler has its own policy.
    """

    def __init__(self, *, group: str, **options: Unpack[ConsumerOptions]) -> None:
        check_group(group)
        for name in options:
            if name not in ConsumerOptions.__annotations__:
                raise UsageError(
                    f"Consumers has no option {name!r}",
                    fix="give options of Consumer that do not name events: the handlers do. For"
                    " tombstones, register a handler of Deleted[EventClass]",
                )
        self._group = group
        self._options = options
        self._handlers = HandlerTable()
        self._consumer: Consumer[Any] | None = None  # while it runs
        self._last: Consumer[Any] | None = None  # of the run that began last
        self._waiting: PutOff
        self._attempts: Attempts
        self._stopping = StopEvent()

    def on(
        self,
        cls: type[T],
        *,
        retry: Retries | None = None,
        then: OnPoison = OnPoison.STOP,
        concurrency: int = 1,
    ) -> Callable[[Callable[[Message[T]], R]], Callable[[Message[T]], R]]:
        """Register the decorated function, plain or `async`, as the handler of an event class.

        The class may be `Deleted[OrderPlaced]`, for the tombstones of that event's topic.

        After the last attempt that `retry` gives (default: the only one), `then` decides. STOP
        raises, SKIP counts the message, and DEAD_LETTER writes it to the dead-letter topic. `retry`
        may be a dict of them by exception class: the first class that fits counts.

        With `concurrency`, up to so many messages are handled at once. Those of one key are handled
        one after the other, in their order.
        """

        def register(function: Callable[[Message[T]], R]) -> Callable[[Message[T]], R]:
            is_async, spanned = inspect.iscoroutinefunction(function), traced(function)
            handler = handler_of(spanned, retry, policy, concurrency=concurrency, is_async=is_async)
            self._register(cls, handler)
            return function

        policy = self._check(cls, then)
        return register

    def on_batch(
        self,
        cls: type[T],
        *,
        size: int = 100,
        seconds: float = 1.0,
        retry: Retries | None = None,
        then: OnPoison = OnPoison.STOP,
    ) -> Callable[[Callable[[list[Message[T]]], R]], Callable[[list[Message[T]]], R]]:
        """Register the decorated function as the handler of batches of an event class.

        It is called with `size` messages, or with those that arrived within `seconds` of the first.
        After the last attempt that `retry` gives, it is called once with each message alone. `then`
        decides about the messages that fail again.
        """

        def register(function: Callable[[list[Message[T]]], R]) -> Callable[[list[Message[T]]], R]:
            limits = BatchLimits(size, seconds)
            is_async = inspect.iscoroutinefunction(function)
            handler = handler_of(function, retry, policy, batch=limits, is_async=is_async)
            self._register(cls, handler)
            return function

        policy = self._check(cls, then)
        return register

    def run(self, consumer: Consumer[Any] | None = None) -> None:
        """Handle messages until `stop`, SIGTERM, or SIGINT; in the main thread, or any other.

        For a test, give a ReplayingConsumer as `consumer`.
        """
        before = self._catch_signals()
        try:
            with suppress(StoppedError), self._open(consumer) as opened:
                if any(handler.is_async for handler in self._handlers.values()):
                    asyncio.run(self._work_async(opened))
                else:
                    self._work(opened)
        finally:
            self._consumer = None
            for number, handler in before.items():
                signal.signal(number, handler)

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Handle messages meanwhile: the `lifespan=` of FastAPI and Starlette, or an `async with`.

        At the end, the current message is handled first. An error of a handler is raised then.
        """
        with suppress(StoppedError):
            async with await self._open_async() as consumer:
                working = asyncio.create_task(self._work_async(consumer))
                working.add_done_callback(_log_error)
                try:
                    yield
                finally:
                    self.stop()
                    await working
                    self._consumer = None

    @property
    def totals(self) -> Mapping[str, int]:
        """The messages that ended since the run that began last, by outcome; see `Consumer`."""
        return no_totals() if self._last is None else self._last.totals

    def stop(self) -> None:
        """End after the current message; safe in signal handlers and threads."""
        self._stopping.set()
        if self._consumer is not None:
            self._consumer.stop()

    @staticmethod
    def _check(cls: type, then: OnPoison) -> OnPoison:
        """Return the policy of a handler; raise for a class that is no event, or a wrong policy."""
        event_class_of(cls)
        return choice(OnPoison, then, "then")

    def _register(self, cls: type, handler: Handler) -> None:
        self._handlers.add(cls, handler)

    def _open(self, given: Consumer[Any] | None) -> Consumer[Any]:
        if not self._handlers:
            raise UsageError("there is no handler", fix="register one with @app.on(EventClass)")
        self._stopping.clear()
        self._consumer = given or RetryingConsumer(self._handlers, self._group, self._options)
        self._last = self._consumer
        self._waiting = PutOff(self._consumer)
        self._attempts = Attempts(self._stopping, self._waiting.count)
        if self._stopping.is_set():  # while the consumer was made: `stop` did not know it
            self._consumer.stop()
        return self._consumer

    async def _open_async(self) -> Consumer[Any]:
        """Return the opened consumer; a task that is cancelled meanwhile closes it."""
        try:
            return await in_thread(self._open, None)
        except asyncio.CancelledError:
            if self._consumer is not None:
                await self._consumer.aclose()
                self._consumer = None
            raise

    def _catch_signals(self) -> dict[int, Any]:
        """Stop on SIGTERM and SIGINT, if this is the main thread; return the earlier handlers."""
        if threading.current_thread() is not threading.main_thread():
            return {}

        def handle(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        return {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}

    @property
    def _runs_beside(self) -> bool:
        """Whether any handler takes batches, or several messages at once."""
        return any(h.concurrency > 1 or h.batch is not None for h in self._handlers.values())

    def _dispatch(self, consumer: Consumer[Any]) -> Dispatch:
        waiting, attempts = self._waiting, self._attempts
        return Dispatch(consumer, waiting, self._handlers, attempts, self._stopping)

    def _work(self, consumer: Consumer[Any]) -> None:
        if self._runs_beside:
            self._dispatch(consumer).run()
            return
        found = self._handlers.get
        for message in self._waiting.messages():
            handler = found(type(message.event)) or self._handlers.other(message)
            try:
                handler.function(message)
            except Exception as error:
                ending = self._attempts.retry(handler, message, error)
                if ending is not HANDLED:
                    consumer._end_last(ending)

    async def _work_async(self, consumer: Consumer[Any]) -> None:
        try:
            await self._handle_async(consumer)
        finally:
            self._attempts.close()

    async def _handle_async(self, consumer: Consumer[Any]) -> None:
        if self._runs_beside:
            await self._dispatch(consumer).run_async()
            return
        waiting = self._waiting
        buffered, found = waiting.buffered, self._handlers.get
        while not consumer._ended:
            message = buffered() or await waiting.next_async(POLL_SECONDS)
            if message is None:
                continue
            handler = found(type(message.event)) or self._handlers.other(message)
            ending = HANDLED
            if (
                handler.is_async
            ):  # as `handle_one_async`, because its call costs as much as all else
                try:
                    await handler.function(message)
                except (Exception, asyncio.CancelledError) as error:
                    ending = await self._attempts.retry_async(handler, message, error)
            else:
                (ending,) = await self._attempts.handle_async(handler, [message])
            if ending is not HANDLED:
                await in_thread(consumer._end_last, ending)


def _log_error(working: asyncio.Task[None]) -> None:
    error = None if working.cancelled() else working.exception()
    if error is not None and not isinstance(error, StoppedError):
        _log.error("the handlers stopped", exc_info=error)
