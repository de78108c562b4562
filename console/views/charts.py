"""Charts as values: lines, axes with labels, and a text for every slot of time.

Rules:

- Pure. The template draws what is here: coordinates are in a box of WIDTH by HEIGHT, and labels
  stand at equal distances, the first at the start of the axis.
- A missing value breaks the line. It is never drawn as zero, and never bridged.
- At most MAX_SLOTS slots: longer series are reduced, as `Reduce` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise

WIDTH, HEIGHT = 1000, 200
MAX_SLOTS = 168
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_DURATIONS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_FLOORS = (0.9999, 0.999, 0.99, 0.9, 0.5, 0.0)
_ROWS = 4  # between the lines of the grid, at most


class Unit(StrEnum):
    """The unit of a chart's values."""

    MESSAGES = "messages"
    RATE = "messages/s"
    SECONDS = "time"
    SHARE = "share"


class Reduce(StrEnum):
    """How values are reduced to one: the largest, the least, or the mean."""

    MAX = "max"
    MIN = "min"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """A time axis in ms since 1970, with a label at every tick."""

    start: int
    end: int
    tick_ms: int
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Values of a line by time, oldest first and `step_ms` or more apart; None: unknown."""

    name: str
    step_ms: int
    points: Sequence[tuple[int, float | None]]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line: its name, its path in the box, and two of its values as text.

    `worst` is its largest value, and of shares the least.
    """

    name: str
    path: str
    last: str
    worst: str


@dataclass(frozen=True, slots=True)
class ChartSlot:
    """A slot of time: its place in the box, its time, and the values of all lines as text."""

    x: float
    width: float
    time: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `y_labels` go from the top to the bottom; without `slots` nothing is known."""

    title: str
    unit: Unit
    x_labels: tuple[str, ...]
    y_labels: tuple[str, ...]
    lines: tuple[ChartLine, ...]
    slots: tuple[ChartSlot, ...]


@dataclass(frozen=True, slots=True)
class Period:
    """The time that charts show, in ms since 1970; `is_newest` if it ends now.

    `later` is the end of the period after it, or None if that one has not ended yet.
    """

    start: int
    end: int
    is_newest: bool
    later: int | None


SPANS = {"hour": 3_600_000, "day": 86_400_000, "week": 7 * 86_400_000}
_TICKS = {"hour": 10 * _MINUTE_MS, "day": 4 * _HOUR_MS, "week": _DAY_MS}
_ENDS = {"hour": 10 * _MINUTE_MS, "day": _HOUR_MS, "week": _DAY_MS}


def time_axis(span: str, now: int) -> TimeAxis:
    """Return the axis of an hour, a day, or a week that ends now, rounded up to whole units."""
    end = -(-now // _ENDS[span]) * _ENDS[span]
    return axis_of(end - SPANS[span], end, _TICKS[span])


def shown_period(span: str, now: int, until: int | None) -> tuple[TimeAxis, Period]:
    """Return the axis of a span that ends at `until`, or now without one, and its period."""
    end = now if until is None else min(now, max(until, SPANS[span]))
    axis = time_axis(span, end)
    is_newest = axis.end >= now
    after = axis.end + SPANS[span]
    return axis, Period(axis.start, axis.end, is_newest, after if after < now else None)


def axis_of(start: int, end: int, tick: int) -> TimeAxis:
    """Return an axis with a label at every `tick` milliseconds; days are named if it has some."""
    form = "%H:%M" if end - start <= 2 * _DAY_MS else "%d %b"
    return TimeAxis(
        start, end, tick, tuple(clock_text(t, form) for t in range(start, end + 1, tick))
    )


def chart(
    title: str,
    unit: Unit,
    axis: TimeAxis,
    series: Sequence[Series],
    reduce: Reduce = Reduce.MAX,
) -> Chart:
    """Return the chart of the series within the axis; those without any value are left out."""
    slot_ms = _slot_ms(axis, series)
    count = max(1, -(-(axis.end - axis.start) // slot_ms))
    lines = [(one.name, _slots(one, axis, slot_ms, count, reduce)) for one in series]
    lines = [(name, values) for name, values in lines if any(v is not None for v in values)]
    known = [v for _, values in lines for v in values if v is not None]
    bottom, top, rows = _range(unit, known)
    width = WIDTH * slot_ms / (axis.end - axis.start)
    drawn = tuple(
        _line(name, values, unit, _path(values, width, bottom, top, lead=axis_lead(unit)))
        for name, values in lines
    )
    texts = tuple(
        ChartSlot(
            round(n * width, 2),
            round(width, 2),
            clock_text(axis.start + n * slot_ms, "%Y-%m-%d %H:%M"),
            tuple(value_text(unit, values[n]) for _, values in lines),
        )
        for n in range(count)
        if any(values[n] is not None for _, values in lines)
    )
    labels = tuple(value_text(unit, top - (top - bottom) * n / rows) for n in range(rows + 1))
    return Chart(title, unit, axis.labels, labels, drawn, texts)


def _line(name: str, values: Sequence[float | None], unit: Unit, path: str) -> ChartLine:
    known = [value for value in values if value is not None]
    worst = min(known) if unit is Unit.SHARE else max(known)
    return ChartLine(name, path, value_text(unit, known[-1]), value_text(unit, worst))


def axis_lead(unit: Unit) -> float:
    """Return where in its slot a value stands, from 0 (the start) to 1."""
    return 1.0 if unit is Unit.RATE else 0.5


def value_text(unit: Unit, value: float | None) -> str:
    """Return a value with its unit."""
    if value is None:
        return "\u2013"
    if unit is Unit.SHARE:
        shown = math.floor(value * 1_000_000) / 10_000
        return f"{shown:.4f}".rstrip("0").rstrip(".") + " %"
    if unit is Unit.SECONDS:
        return _duration(value)
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def rate_of(series: Series) -> Series:
    """Return the growth of a counter per second; None where it shrank or is unknown."""
    grown = [
        (
            at,
            None if old is None or new is None or new < old else (new - old) * 1000 / (at - before),
        )
        for (before, old), (at, new) in pairwise(series.points)
    ]
    return Series(series.name, series.step_ms, grown)


def _slot_ms(axis: TimeAxis, series: Sequence[Series]) -> int:
    step = max((one.step_ms for one in series), default=axis.tick_ms)
    most = -(-(axis.end - axis.start) // MAX_SLOTS)
    return step * max(1, -(-most // step))


def _slots(
    one: Series, axis: TimeAxis, slot_ms: int, count: int, reduce: Reduce
) -> list[float | None]:
    found: list[list[float]] = [[] for _ in range(count)]
    for at, value in one.points:
        slot = (at - axis.start) // slot_ms
        if value is not None and 0 <= slot < count:
            found[slot].append(value)
    reduced: dict[Reduce, Callable[[list[float]], float]] = {
        Reduce.MAX: max,
        Reduce.MIN: min,
        Reduce.MEAN: lambda values: sum(values) / len(values),
    }
    return [reduced[reduce](values) if values else None for values in found]


def _range(unit: Unit, known: Sequence[float]) -> tuple[float, float, int]:
    """Return the bottom and top of the axis, and the rows of the grid between them."""
    if unit is Unit.SHARE:
        least = min(known, default=0.0)
        return next(floor for floor in _FLOORS if floor <= least or floor == 0.0), 1.0, 2
    most = max(known, default=0.0)
    if most <= 0:
        return 0.0, 1.0, 1
    step = _step(unit, most / _ROWS)
    rows = max(1, math.ceil(round(most / step, 9)))
    return 0.0, step * rows, rows


def _step(unit: Unit, least: float) -> float:
    if unit is Unit.SECONDS and least <= _DURATIONS[-1]:
        return next(float(one) for one in _DURATIONS if one >= least)
    scale = 10.0 ** math.floor(math.log10(least))
    step = next(one * scale for one in _STEPS if one * scale >= least * (1 - 1e-9))
    return max(1.0, math.ceil(step)) if unit is Unit.MESSAGES else step


def _path(
    values: Sequence[float | None], width: float, bottom: float, top: float, *, lead: float
) -> str:
    return " ".join(_segments(values, width, bottom, top, lead))


def _segments(
    values: Sequence[float | None], width: float, bottom: float, top: float, lead: float
) -> Iterator[str]:
    before: float | None = None
    for number, value in enumerate(values):
        if value is not None:
            share = min(1.0, max(0.0, (value - bottom) / (top - bottom)))
            y = HEIGHT - 2 - (HEIGHT - 4) * share
            x = (number + lead) * width
            alone = before is None and (number + 1 == len(values) or values[number + 1] is None)
            if alone:  # a point has no length: it is drawn as wide as its slot
                yield f"M{x - width / 2:.1f} {y:.1f}h{width:.1f}"
            else:
                yield f"{'M' if before is None else 'L'}{x:.1f} {y:.1f}"
        before = value


def clock_text(millis: int, form: str) -> str:
    """Return a moment in UTC in the format of `strftime`."""
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):  # event times may be anything
        return f"{millis} ms"


def _duration(seconds: float) -> str:
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.1f}".removesuffix(".0") + " s"
