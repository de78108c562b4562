"""Template filters: numbers, sizes, times, ages, and links as text for people.

Rules: the filters return text and never markup; the template escapes it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from headworks._console.sources.poller import SourceState

_SECONDS = ((31557600.0, "y"), (86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_MS_PER_SECOND = 1000
_MINUTE_SECONDS = 60.0
_HANGING_SECONDS = 10.0
_OLD_SECONDS = 90.0
_NO_VALUE = "\u2013"
# Characters that turn the direction of the text after them: a message could hide what it says.
_DIRECTIONS = {
    code: f"\\u{code:04x}"
    for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def number(value: float | None) -> str:
    """Return a number with thousands separators, or a dash for None."""
    if value is None:
        return _NO_VALUE
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{int(value):,}"


def rate(value: float | None) -> str:
    """Return messages per second."""
    if value is None:
        return _NO_VALUE
    return "0" if value == 0 else f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def size(value: int) -> str:
    """Return bytes in a unit that keeps the number below 1000."""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def duration(seconds: float | None) -> str:
    """Return a duration in the largest unit that it fills."""
    if seconds is None:
        return _NO_VALUE
    for length, unit in _SECONDS:
        if seconds >= length:
            return (
                f"{seconds / length:.1f} {unit}"
                if seconds < 10 * length
                else (f"{seconds / length:.0f} {unit}")
            )
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f} s"


def ago(millis: int | None) -> str:
    """Return the time since a moment, in whole units: a page changes only if this does."""
    if millis is None:
        return _NO_VALUE
    passed = time.time() - millis / _MS_PER_SECOND
    if passed < _MINUTE_SECONDS:
        return "under a minute ago"
    length, unit = next((length, unit) for length, unit in _SECONDS if passed >= length)
    return f"{math.floor(passed / length)} {unit} ago"


def source_level(state: SourceState) -> str:
    """Return how a source is: up, old, or down."""
    if state.problem or (state.reading_seconds or 0) > _HANGING_SECONDS:
        return "down"
    return "old" if (state.age_seconds or 0) > _OLD_SECONDS else "up"


def source_age(state: SourceState) -> str:
    """Return a source's name and the age of its last reading."""
    if state.age_seconds is None:
        return f"{state.name} {'does not answer' if state.problem else 'not read yet'}"
    return f"{state.name} {duration(state.age_seconds)} ago"


def _moment(millis: int) -> datetime | None:
    """Return a moment in UTC, or None outside the calendar (record timestamps may be anything)."""
    try:
        return datetime.fromtimestamp(millis / _MS_PER_SECOND, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def clock(millis: int | None) -> str:
    """Return a moment in UTC, with milliseconds if it has some."""
    moment = None if millis is None else _moment(millis)
    if millis is None or moment is None:
        return _NO_VALUE if millis is None else f"{millis} ms"
    fraction = f".{millis % _MS_PER_SECOND:03d}" if millis % _MS_PER_SECOND else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"


def iso(millis: int) -> str:
    """Return a moment in UTC in the format of the command line."""
    moment = _moment(millis)
    return str(millis) if moment is None else f"{moment:%Y-%m-%dT%H:%MZ}"


def datetime_input(millis: int | None) -> str:
    """Return a moment in UTC for a browser's `datetime-local` field; empty for None."""
    moment = None if millis is None else _moment(millis)
    return "" if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}"


def short_clock(millis: int) -> str:
    """Return hour and minute in UTC."""
    moment = _moment(millis)
    return str(millis) if moment is None else f"{moment:%H:%M}"


def day(millis: int) -> str:
    """Return month and day in UTC."""
    moment = _moment(millis)
    return "" if moment is None else f"{moment:%d %b}"


def percent(share: float | None) -> str:
    """Return a share of 1 as a percentage, rounded down: only 1 is shown as 100 %."""
    if share is None:
        return _NO_VALUE
    if share >= 1:
        return "100 %"
    digits = 4 if share > 0.99 else 1
    return f"{math.floor(share * 100 * 10**digits) / 10**digits:.{digits}f} %"


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")


def query(parameters: Mapping[str, Any]) -> str:
    """Return parameters as a query string, without empty ones."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return "&".join(f"{quote(n, safe='')}={quote(str(v), safe='')}" for n, v in given.items())


def pretty(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str).translate(_DIRECTIONS)


def indented(text: str) -> str:
    """Indent JSON that is on one line, and return any other text unchanged."""
    try:
        return pretty(json.loads(text)) if "\n" not in text else text
    except ValueError:
        return text


def compact(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, default=str).translate(_DIRECTIONS)


def sparkline(values: tuple[float, ...]) -> str:
    """Return the points of a line 100 wide and 20 high, or "" for less than two values."""
    if len(values) < 2:
        return ""
    top = max(values) or 1.0
    step = 100 / (len(values) - 1)
    return " ".join(f"{i * step:.1f},{19 - 18 * v / top:.1f}" for i, v in enumerate(values))


FILTERS: dict[str, Callable[..., str]] = {
    "number": number,
    "rate": rate,
    "size": size,
    "duration": duration,
    "ago": ago,
    "clock": clock,
    "datetime_input": datetime_input,
    "short_clock": short_clock,
    "day": day,
    "percent": percent,
    "segment": segment,
    "query": query,
    "pretty": pretty,
    "indented": indented,
    "compact": compact,
    "source_age": source_age,
    "source_level": source_level,
    "sparkline": sparkline,
}
