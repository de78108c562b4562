"""The headers that every event carries: those of the program, of the request, and of the trace.

Rules: a header given to `send` wins over one of the request, which wins over one of the program.
W3C's `traceparent` is added only if OpenTelemetry is installed and a span is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["Headers", "Tracing", "event_headers", "headers_of", "tracing"]

Headers = Mapping[str, bytes | str]
_request: ContextVar[Headers | None] = ContextVar("headworks_headers", default=None)


@contextmanager
def event_headers(**headers: bytes | str) -> Iterator[None]:
    """Add headers to every event sent inside; each thread and task has its own."""
    token = _request.set({**(_request.get() or {}), **headers})
    try:
        yield
    finally:
        _request.reset(token)


class Tracing(NamedTuple):
    """OpenTelemetry's functions for the active span and its headers."""

    active: Callable[[], Mapping[str, object]]  # returns the context; empty: no span is active
    inject: Callable[[dict[str, bytes | str]], object]  # adds the headers of the span


def tracing() -> Tracing | None:
    """Return the functions of OpenTelemetry; None if it is not installed."""
    try:
        from opentelemetry.context import get_current
        from opentelemetry.propagate import inject
    except ImportError:
        return None
    return Tracing(get_current, inject)


def headers_of(
    program: Headers | None, traces: Tracing | None, given: Headers | None
) -> Headers | None:
    """Return the headers of one message, or None if there are none."""
    request = _request.get()
    traced = traces is not None and traces.active()
    if not traced and request is None and (program is None or given is None):
        return program or given
    found: dict[str, bytes | str] = {}
    for headers in (program, request):
        if headers:
            found.update(headers)
    if traces is not None and traced:
        traces.inject(found)
    if given:
        found.update(given)
    return found or None
