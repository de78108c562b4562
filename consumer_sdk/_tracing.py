"""Spans around handlers, as children of the span in which the event was sent.

Rules:

- There are none unless OpenTelemetry is installed. Each attempt has a span, which records the error
  that the handler raised.
- A message without headers has none until a tracer provider is set. Such a span would record
  nothing and continue no trace, and it costs more than everything else that a message needs.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeVar

from consumer_sdk._message import Message

R = TypeVar("R")
_Handler = Callable[[Message[Any]], R]
_Span = Callable[[Message[Any]], AbstractContextManager[object]]
_LOOK_EVERY_SECONDS = 1.0  # for a tracer provider that is set later


def traced(function: _Handler[R]) -> _Handler[R]:
    """Return a handler that runs in a span of its own; `function` itself without OpenTelemetry.

    For a coroutine function, the returned handler is a plain function that returns its coroutine.
    """
    span = _span_maker()
    if span is None:
        return function
    recording = _Recording()
    if inspect.iscoroutinefunction(function):

        async def in_span(message: Message[Any]) -> Any:
            with span(message):
                return await function(message)

        # It is no coroutine function, because a second coroutine would cost every message.
        @wraps(function)
        def handle_async(message: Message[Any]) -> Any:
            if not message.headers and not recording.is_on:
                return function(message)
            return in_span(message)

        return handle_async

    @wraps(function)
    def handle(message: Message[Any]) -> R:
        if not message.headers and not recording.is_on:
            return function(message)
        with span(message):
            return function(message)

    return handle


class _Recording:
    """Whether a tracer provider is set. The question costs too much to ask for every message."""

    def __init__(self) -> None:
        self._found = False
        self._due = 0.0  # the monotonic time of the next look

    @property
    def is_on(self) -> bool:
        """Whether spans are recorded."""
        if not self._found and (now := time.monotonic()) >= self._due:
            from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

            self._found = not isinstance(get_tracer_provider(), ProxyTracerProvider)
            self._due = now + _LOOK_EVERY_SECONDS
        return self._found


def _span_maker() -> _Span | None:
    try:
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, get_tracer
    except ImportError:
        return None
    tracer = get_tracer("headworks.consumer")

    def span(message: Message[Any]) -> AbstractContextManager[object]:
        carried = {name: (value or b"").decode("latin-1") for name, value in message.headers}
        found: AbstractContextManager[object] = tracer.start_as_current_span(
            f"process {message.topic}",
            context=extract(carried),
            kind=SpanKind.CONSUMER,
            attributes={
                "messaging.system": "kafka",
                "messaging.destination.name": message.topic,
                "messaging.destination.partition.id": str(message.partition),
                "messaging.kafka.offset": message.offset,
            },
        )
        return found

    return span
