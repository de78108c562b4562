"""The attempts of a handler at a message or a batch, and the ending that follows the last one.

Rules:

- A stop ends the pause between two attempts, and leaves the message to the next member.
- A handler that is cancelled by itself, and not with its task, has failed. Its task would end in
  silence, and the application would go on without its handlers.
- A batch that failed for the last time is handled again message by message, once each. So one bad
  message does not take the others along.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from consumer_sdk._message import Message
from consumer_sdk._outcomes import HANDLED, Ending
from consumer_sdk._poison import OnPoison
from consumer_sdk._retry import Handler
from headworks._audit_counting.outcomes import DEAD, RETRIED, SKIPPED

_log = logging.getLogger("headworks.consumer")
_STOP_TURN_SECONDS = 0.05
_Failure = tuple[Exception, int]  # the error of the last attempt, and the number of attempts


class StoppedError(Exception):
    """The application stops in a pause between two attempts."""


class HandlerCancelledError(Exception):
    """A handler let the cancellation of something that it awaited pass."""


def failure_of(error: asyncio.CancelledError) -> HandlerCancelledError:
    """Return a cancellation as the failure of a handler; raise it if the task is cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    return HandlerCancelledError(f"the handler was cancelled from inside: {error!r}")


class Attempts:
    """Calls handlers until they return, or until their policy ends the message.

    `count_of` returns how often a message was put off.
    """

    def __init__(self, stopping: threading.Event, count_of: Callable[[Message[Any]], int]) -> None:
        self._stopping, self._count_of = stopping, count_of
        self._pools: dict[Handler, ThreadPoolExecutor] = {}  # of plain functions beside a loop

    def close(self) -> None:
        """End the threads, without waiting for a call that was given up."""
        for pool in self._pools.values():
            pool.shutdown(wait=False)

    def handle(self, handler: Handler, messages: list[Message[Any]]) -> list[Ending]:
        """Handle a batch, or the only message; return the ending of each, or raise."""
        failure = self._attempt(handler, messages)
        if failure is None:
            return [HANDLED] * len(messages)
        if len(messages) == 1:
            return [self.ending(handler, messages[0], *failure)]
        return [self._alone(handler, message, failure[1]) for message in messages]

    def handle_one(self, handler: Handler, message: Message[Any]) -> Ending:
        """Do what `handle` does with one message, for a handler of single ones."""
        try:
            handler.function(message)
        except Exception as error:
            return self.retry(handler, message, error)
        return HANDLED

    def retry(self, handler: Handler, message: Message[Any], error: Exception) -> Ending:
        """Attempt a message again whose first attempt raised."""
        failure = self._attempt(handler, [message], error)
        return HANDLED if failure is None else self.ending(handler, message, *failure)

    async def retry_async(
        self, handler: Handler, message: Message[Any], error: Exception | asyncio.CancelledError
    ) -> Ending:
        """Do what `retry` does, but let the event loop run meanwhile."""
        if isinstance(error, asyncio.CancelledError):
            error = failure_of(error)
        failure = await self._attempt_async(handler, [message], error)
        return HANDLED if failure is None else self.ending(handler, message, *failure)

    async def handle_one_async(self, handler: Handler, message: Message[Any]) -> Ending:
        """Do what `handle_one` does, but let the event loop run meanwhile."""
        if not handler.is_async:
            (ending,) = await self.handle_async(handler, [message])
            return ending
        try:
            await handler.function(message)
        except (Exception, asyncio.CancelledError) as error:
            return await self.retry_async(handler, message, error)
        return HANDLED

    async def handle_async(self, handler: Handler, messages: list[Message[Any]]) -> list[Ending]:
        """Do what `handle` does, but let the event loop run meanwhile."""
        failure = await self._attempt_async(handler, messages)
        if failure is None:
            return [HANDLED] * len(messages)
        if len(messages) == 1:
            return [self.ending(handler, messages[0], *failure)]
        endings = []
        for message in messages:
            try:
                await self._call_async(handler, [message])
            except Exception as error:
                endings.append(self.ending(handler, message, error, failure[1] + 1))
            else:
                endings.append(HANDLED)
        return endings

    def ending(
        self, handler: Handler, message: Message[Any], error: Exception, attempts: int
    ) -> Ending:
        """Return the ending of a message after its last attempt in place, or raise its error."""
        count = self._count_of(message)
        delay = handler.retry(error).delay_after(count, error)
        if delay is not None:
            _log.warning(
                "%s partition %d offset %d: the next attempt is in %d s: %r",
                *(message.topic, message.partition, message.offset, delay, error),
            )
            return Ending(RETRIED, delay=delay, count=count + 1)
        if handler.then is OnPoison.STOP:
            raise error
        if handler.then is OnPoison.SKIP:
            return Ending(SKIPPED)
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        if count:
            times += ", and put off once" if count == 1 else f", and put off {count} times"
        name = type(error).__name__
        return Ending(DEAD, f"{name}: {error} (after {times})", name)

    def _alone(self, handler: Handler, message: Message[Any], attempts: int) -> Ending:
        try:
            _call(handler, [message])
        except Exception as error:
            return self.ending(handler, message, error, attempts + 1)
        return HANDLED

    def _attempt(
        self, handler: Handler, messages: list[Message[Any]], error: Exception | None = None
    ) -> _Failure | None:
        """Call a handler until it returns; return its last failure if it never does."""
        attempt = 0
        while True:
            attempt += 1
            try:
                if error is not None:  # of a first attempt that the caller made
                    raise error
                _call(handler, messages)
            except Exception as raised:
                pause = self._pause(handler, messages[0], attempt, raised)
                if pause is None:
                    return raised, attempt
                error = None
            else:
                return None
            if self._stopping.wait(pause):
                raise StoppedError

    async def _attempt_async(
        self, handler: Handler, messages: list[Message[Any]], error: Exception | None = None
    ) -> _Failure | None:
        attempt = 0
        while True:
            attempt += 1
            try:
                if error is not None:  # of a first attempt that the caller made
                    raise error
                await self._call_async(handler, messages)
            except Exception as raised:
                pause = self._pause(handler, messages[0], attempt, raised)
                if pause is None:
                    return raised, attempt
                error = None
            else:
                return None
            await self._sleep(pause)

    async def _call_async(self, handler: Handler, messages: list[Message[Any]]) -> None:
        given = messages if handler.batch is not None else messages[0]
        if handler.is_async:
            try:
                await handler.function(given)
            except asyncio.CancelledError as error:
                raise failure_of(error) from error
            return
        pool = self._pools.get(handler)
        if pool is None:  # the loop's own threads are few, and polls need them
            pool = ThreadPoolExecutor(handler.concurrency, "headworks-handler")
            self._pools[handler] = pool
        call = partial(copy_context().run, handler.function, given)
        await asyncio.get_running_loop().run_in_executor(pool, call)

    async def _sleep(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            if self._stopping.is_set():
                raise StoppedError
            await asyncio.sleep(min(left, _STOP_TURN_SECONDS))

    def _pause(
        self, handler: Handler, message: Message[Any], attempt: int, error: Exception
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


def _call(handler: Handler, messages: list[Message[Any]]) -> None:
    handler.function(messages if handler.batch is not None else messages[0])
