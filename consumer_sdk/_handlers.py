"""Handlers of events: one function for each class, retried in place, with an end for what fails.

Rules:

- A message is processed when its handler returned, or when its failure was dealt with. A handler
  that is stopped in a pause between two attempts leaves its message to the next member.
- One message at a time is handled, in the order of its partition. More processes share the work.
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
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar, Unpack

from consumer_sdk._consumer import Consumer
from consumer_sdk._message import Message
from consumer_sdk._options import ConsumerOptions
from consumer_sdk._poison import OnPoison
from consumer_sdk._retrying_consumer import PutOff, RetryingConsumer
from consumer_sdk._tracing import traced
from headworks._choice import choice
from headworks.codec import event_type
from headworks.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger("headworks.consumer")
_STOP_TURN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a handler that raised is called again, with the same message.

    The first pause is `pause` seconds. Each further one is twice as long, up to `longest_pause`.
    All pauses together must be shorter than `max.poll.interval.ms`. After them, the message is put
    off by each delay of `later`, in whole seconds, and attempted again after each. Meanwhile others
    are handled. Exceptions in `never` are not retried.
    """

    attempts: int = 3
    pause: float = 0.5
    longest_pause: float = 30.0
    never: tuple[type[Exception], ...] = ()
    later: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.pause < 0 or self.longest_pause < 0:
            raise UsageError(
                f"a Retry has {self.attempts} attempts and pauses of {self.pause} to"
                f" {self.longest_pause} s",
                fix="give at least one attempt, and pauses of at least 0",
            )
        if not all(isinstance(delay, int) and delay > 0 for delay in self.later):
            raise UsageError(
                f"a Retry has the delays {self.later!r}",
                fix="give whole seconds of at least 1, such as later=(60, 600)",
            )

    def pause_after(self, attempt: int, error: Exception) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        if attempt >= self.attempts or isinstance(error, self.never):
            return None
        return float(min(self.longest_pause, self.pause * 2 ** (attempt - 1)))

    def delay_after(self, count: int, error: Exception) -> int | None:
        """Return by how many seconds a message is put off that was put off `count` times."""
        if count >= len(self.later) or isinstance(error, self.never):
            return None
        return self.later[count]


Retries = Retry | Mapping[type[Exception], Retry]
_ONCE = Retry(attempts=1)


@dataclass(frozen=True, slots=True)
class _Handler:
    function: Callable[[Message[Any]], Any]
    retries: Mapping[type[Exception], Retry]
    then: OnPoison

    def retry(self, error: Exception) -> Retry:
        """Return the policy for an error: that of its first listed class."""
        return next((r for cls, r in self.retries.items() if isinstance(error, cls)), _ONCE)


class _StoppedError(Exception):
    """The application stops in a pause between two attempts."""


class Consumers:
    """Handlers of several event classes, as one member of `group`.

    `options` are those of Consumer. `on_poison` is for messages that cannot be decoded; each
    handler has its own policy.
    """

    def __init__(self, *, group: str, **options: Unpack[ConsumerOptions]) -> None:
        self._group = group
        self._options = options
        self._handlers: dict[type, _Handler] = {}
        self._consumer: Consumer[Any] | None = None  # while it runs
        self._waiting: PutOff
        self._stopping = threading.Event()

    def on(
        self, cls: type[T], *, retry: Retries | None = None, then: OnPoison = OnPoison.STOP
    ) -> Callable[[Callable[[Message[T]], R]], Callable[[Message[T]], R]]:
        """Register the decorated function, plain or `async`, as the handler of an event class.

        After the last attempt that `retry` gives (default: the only one), `then` decides. STOP
        raises, SKIP counts the message, and DEAD_LETTER writes it to the dead-letter topic. `retry`
        may be a dict of them by exception class: the first class that fits counts.
        """
        event_type(cls)
        retries = {Exception: retry} if isinstance(retry, Retry) else dict(retry or {})
        policy = choice(OnPoison, then, "then")

        def register(function: Callable[[Message[T]], R]) -> Callable[[Message[T]], R]:
            if cls in self._handlers:
                raise UsageError(
                    f"{cls.__name__} has a handler already", fix="register one for each class"
                )
            self._handlers[cls] = _Handler(traced(function), retries, policy)
            return function

        return register

    def run(self, consumer: Consumer[Any] | None = None) -> None:
        """Handle messages until `stop`, SIGTERM, or SIGINT; in the main thread, or any other.

        For a test, give a ReplayingConsumer as `consumer`.
        """
        before = self._catch_signals()
        try:
            with suppress(_StoppedError), self._open(consumer) as opened:
                if any(inspect.iscoroutinefunction(h.function) for h in self._handlers.values()):
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
        with suppress(_StoppedError):
            async with self._open(None) as consumer:
                working = asyncio.create_task(self._work_async(consumer))
                working.add_done_callback(_log_error)
                try:
                    yield
                finally:
                    self.stop()
                    await working
                    self._consumer = None

    def stop(self) -> None:
        """End after the current message; safe in signal handlers and threads."""
        self._stopping.set()
        if self._consumer is not None:
            self._consumer.stop()

    def _open(self, given: Consumer[Any] | None) -> Consumer[Any]:
        if not self._handlers:
            raise UsageError("there is no handler", fix="register one with @app.on(EventClass)")
        self._stopping.clear()
        later = {
            cls: {delay for retry in handler.retries.values() for delay in retry.later}
            for cls, handler in self._handlers.items()
        }
        self._consumer = given or RetryingConsumer(later, self._group, self._options)
        self._waiting = PutOff(self._consumer)
        return self._consumer

    def _catch_signals(self) -> dict[int, Any]:
        """Stop on SIGTERM and SIGINT, if this is the main thread; return the earlier handlers."""
        if threading.current_thread() is not threading.main_thread():
            return {}

        def handle(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        return {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}

    def _work(self, consumer: Consumer[Any]) -> None:
        for message in self._waiting.messages():
            handler = self._handlers[type(message.event)]
            try:
                handler.function(message)
            except Exception as error:
                self._retry(consumer, handler, message, error)

    def _retry(
        self, consumer: Consumer[Any], handler: _Handler, message: Message[Any], error: Exception
    ) -> None:
        """Attempt a message again."""
        attempt = 1
        while (pause := self._pause(handler, message, attempt, error)) is not None:
            if self._stopping.wait(pause):
                raise _StoppedError
            try:
                handler.function(message)
            except Exception as again:
                error, attempt = again, attempt + 1
            else:
                return
        self._give_up(consumer, handler, message, error, attempt)

    async def _work_async(self, consumer: Consumer[Any]) -> None:
        async for message in self._waiting.amessages():
            handler = self._handlers[type(message.event)]
            await self._attempt_async(consumer, handler, message)

    async def _attempt_async(
        self, consumer: Consumer[Any], handler: _Handler, message: Message[Any]
    ) -> None:
        attempt, function = 1, handler.function
        while True:
            try:
                if inspect.iscoroutinefunction(function):
                    await function(message)
                else:
                    await asyncio.to_thread(function, message)
            except Exception as error:
                pause = self._pause(handler, message, attempt, error)
                if pause is None:
                    failed = handler, message, error, attempt
                    await asyncio.to_thread(self._give_up, consumer, *failed)
                    return
            else:
                return
            attempt += 1
            await self._sleep(pause)

    async def _sleep(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            if self._stopping.is_set():
                raise _StoppedError
            await asyncio.sleep(min(left, _STOP_TURN_SECONDS))

    def _pause(
        self, handler: _Handler, message: Message[Any], attempt: int, error: Exception
    ) -> float | None:
        retry = handler.retry(error)
        pause = retry.pause_after(attempt, error)
        if pause is not None:
            _log.warning(
                "%s partition %d offset %d: attempt %d of %d failed, the next is in %.1f s: %r",
                *(message.topic, message.partition, message.offset),
                *(attempt, retry.attempts, pause, error),
            )
        return pause

    def _give_up(
        self,
        consumer: Consumer[Any],
        handler: _Handler,
        message: Message[Any],
        error: Exception,
        attempts: int,
    ) -> None:
        """Put a message off after its last attempt in place, or end it by the policy."""
        count = self._waiting.count(message)
        delay = handler.retry(error).delay_after(count, error)
        if delay is not None:
            _log.warning(
                "%s partition %d offset %d: the next attempt is in %d s: %r",
                *(message.topic, message.partition, message.offset, delay, error),
            )
            consumer._put_off(delay, count + 1)
            return
        if handler.then is OnPoison.STOP:
            raise error
        if handler.then is OnPoison.SKIP:
            consumer.skip()
        else:
            times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
            consumer.reject(f"{type(error).__name__}: {error} (after {times})", error)


def _log_error(working: asyncio.Task[None]) -> None:
    error = None if working.cancelled() else working.exception()
    if error is not None and not isinstance(error, _StoppedError):
        _log.error("the handlers stopped", exc_info=error)
