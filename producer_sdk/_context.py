"""The arguments of a producer, checked, and the headers of the program, the request, and the trace.

Rules: a header given to `send` wins over one of the request, which wins over one of the program.
W3C's `traceparent` is added only if OpenTelemetry is installed and a span is active.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from headworks._choice import check_text
from headworks.errors import UsageError

Headers = Mapping[str, bytes | str]
_request: ContextVar[Headers | None] = ContextVar("headworks_headers", default=None)
_MAX_PARTITION = (1 << 31) - 1  # Kafka's partition is an int32


@contextmanager
def event_headers(**headers: bytes | str) -> Iterator[None]:
    """Add headers to every event sent inside; each thread and task has its own."""
    check_headers(headers)
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


def check_headers(headers: Headers | None) -> Headers | None:
    """Return headers; UsageError unless they are a mapping from names to bytes or text, or None."""
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise UsageError(f"headers are of type {type(headers).__name__}", fix="give a dict")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes | str):
            raise UsageError(
                f"header {name!r} is of type {type(value).__name__}",
                fix="give bytes or text under a name",
            )
        check_text(name, "header")
        if isinstance(value, str):
            check_text(value, f"header {name!r} is")
    return headers


def key_of(given: object) -> bytes:
    """Return a key as bytes; UsageError if it is neither bytes nor text."""
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"key {given!r} is not valid Unicode: it has a lone surrogate", fix="give bytes"
            ) from None
    if not isinstance(given, bytes):
        raise UsageError(f"key is of type {type(given).__name__}", fix="give bytes or text")
    return given


def checked_classes(events: tuple[type, ...]) -> tuple[type, ...]:
    """Return a tuple of classes; UsageError for a class in its place."""
    if isinstance(events, type):
        raise UsageError(f"events is {events!r}, and not a tuple", fix="use events=(..,)")
    return events


def check_limits(least: float, **given: object) -> None:
    """Raise UsageError for an argument that is no number, or less than `least`."""
    for name, value in given.items():
        if not isinstance(value, int | float) or not value >= least:
            raise UsageError(f"{name} is {value!r}", fix=f"give a number of at least {least}")


def checked_name(application: object) -> str:
    """Return the name of a program; UsageError unless it is text, and not empty."""
    if not isinstance(application, str) or not application:
        raise UsageError(f"application is {application!r}", fix="name this program")
    return check_text(application, "application")


def default_state_dir() -> Path:
    """Return the folder of counters, spills, and known schema ids."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "headworks" / "producer"


def check_partition(partition: int) -> int:
    """Return a partition; UsageError unless it is a whole number that Kafka can carry."""
    if partition.__class__ is not int or not 0 <= partition <= _MAX_PARTITION:
        raise UsageError(
            f"partition is {partition!r}", fix=f"give a whole number from 0 to {_MAX_PARTITION}"
        )
    return partition


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
