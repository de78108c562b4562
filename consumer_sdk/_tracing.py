"""Spans around handlers, as children of the span in which the event was sent.

Rules: there are none unless OpenTelemetry is installed. Each attempt has a span, which records the
error that the handler raised.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeVar

from consumer_sdk._message import Message

R = TypeVar("R")
_Handler = Callable[[Message[Any]], R]


def traced(function: _Handler[R]) -> _Handler[R]:
    """Return a handler that runs in a span of its own; `function` itself without OpenTelemetry."""
    span = _span_maker()
    if span is None:
        return function
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def handle_async(message: Message[Any]) -> Any:
            with span(message):
                return await function(message)

        return handle_async  # type: ignore[return-value]  # R is the coroutine

    @wraps(function)
    def handle(message: Message[Any]) -> R:
        with span(message):
            return function(message)

    return handle


def _span_maker() -> Callable[[Message[Any]], AbstractContextManager[object]] | None:
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
