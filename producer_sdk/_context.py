"""Headers that events carry without anybody naming them: of this program, of this request, of the
trace that is under way.

Rules: a header given to `send` wins over one of the request, which wins over one of the program.
W3C's traceparent is added when OpenTelemetry is installed and a span is active, and only then.
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
    """Give every event that is sent inside these headers; threads and tasks have their own."""
    token = _request.set({**(_request.get() or {}), **headers})
    try:
        yield
    finally:
        _request.reset(token)


class Tracing(NamedTuple):
    """What OpenTelemetry has under way (nothing, if it is empty), and what adds its headers."""

    active: Callable[[], Mapping[str, object]]
    inject: Callable[[dict[str, bytes | str]], object]


def tracing() -> Tracing | None:
    """The traces of this process, or None without OpenTelemetry."""
    try:
        from opentelemetry.context import get_current
        from opentelemetry.propagate import inject
    except ImportError:
        return None
    return Tracing(get_current, inject)


def headers_of(
    program: Headers | None, traces: Tracing | None, given: Headers | None
) -> Headers | None:
    """The headers of one message, or None if there are none."""
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
