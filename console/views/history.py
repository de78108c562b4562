"""The charts of a topic, of a group, and of an audit, from samples and windows.

Rule: pure. Samples are per wall-clock time, windows per event time: the titles say which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headworks._audit.results import TierLine, TopicAudit, WindowState
from headworks._audit_counting import WINDOW_MS
from headworks._console.views.charts import (
    Chart,
    Period,
    Reduce,
    Series,
    TimeAxis,
    Unit,
    axis_of,
    chart,
    clock_text,
    rate_of,
)

if TYPE_CHECKING:
    from headworks._audit.store.samples import SampleSeries

MAX_LINES = 6
_TICKS = 6
_MAX_SPAN_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TopicCharts:
    """The charts of a topic over a span."""

    topic: str
    span: str
    period: Period
    charts: tuple[Chart, ...]
    hidden_readers: bool


@dataclass(frozen=True, slots=True)
class SampledTopic:
    """The samples of a topic, and of the groups that read it, by name."""

    log_end: SampleSeries | None
    lags: Mapping[str, SampleSeries]
    ages: Mapping[str, SampleSeries]


def topic_charts(
    axis: TimeAxis,
    sampled: SampledTopic,
    windows: TopicAudit | None,
    is_due: Callable[[WindowState], bool],
) -> tuple[Chart, ...]:
    """Return the charts of rate, lag, delay, and completeness (of windows that are due)."""
    ends = [_series("written", sampled.log_end)] if sampled.log_end else []
    rate = chart("Messages written", Unit.RATE, axis, [*map(rate_of, ends)], Reduce.MEAN)
    return (
        rate,
        *group_charts(axis, sampled.lags, sampled.ages),
        *_arrivals(axis, windows, is_due),
    )


def group_charts(
    axis: TimeAxis, lags: Mapping[str, SampleSeries], ages: Mapping[str, SampleSeries]
) -> tuple[Chart, Chart]:
    """Return the charts of the lag and of the delay of groups."""
    lag = [_series(name, one) for name, one in lags.items()]
    age = [_in_seconds(_series(name, one)) for name, one in ages.items()]
    return (
        chart("Lag of groups, in all their topics", Unit.MESSAGES, axis, lag),
        chart("Delay of groups: age of the oldest unread message", Unit.SECONDS, axis, age),
    )


def audit_chart(found: TopicAudit) -> Chart | None:
    """Return the chart of the day that ends with a topic's newest window, or None without one."""
    if len(found.windows) < 2:
        return None
    end = found.windows[-1] + WINDOW_MS
    start = max(found.windows[0], end - _MAX_SPAN_MS)  # event times may be years apart
    tick = max(WINDOW_MS, -(-(end - start) // _TICKS // WINDOW_MS) * WINDOW_MS)
    end = start + -(-(end - start) // tick) * tick
    series = [_by_window("attempted by producers", found.windows, found.attempted)]
    series += [
        _by_window(
            f"arrived at {line.tier}",
            found.windows,
            [one.balance.accounted if one else 0 for one in line.cells],
        )
        for line in found.tiers[: MAX_LINES - 1]
    ]
    title = f"Messages in ten minutes of event time, {clock_text(start, '%Y-%m-%d')}"
    return chart(title, Unit.MESSAGES, axis_of(start, end, tick), series)


def _arrivals(
    axis: TimeAxis, found: TopicAudit | None, is_due: Callable[[WindowState], bool]
) -> Iterable[Chart]:
    lines: Sequence[TierLine] = found.tiers[:MAX_LINES] if found else ()
    starts = found.windows if found else ()
    shares = [
        _by_window(
            line.tier,
            starts,
            [
                one.balance.completeness
                if one and one.balance.attempted > 0 and (one.balance.complete or is_due(one))
                else None
                for one in line.cells
            ],
        )
        for line in lines
    ]
    took = [
        _by_window(
            line.tier, starts, [one.seconds_to_complete if one else None for one in line.cells]
        )
        for line in lines
    ]
    yield chart("Arrived, by event time", Unit.SHARE, axis, shares, Reduce.MIN)
    yield chart("Time until 99.9 % of a window had arrived", Unit.SECONDS, axis, took)


def _by_window(name: str, starts: Sequence[int], values: Sequence[float | None]) -> Series:
    return Series(name, WINDOW_MS, tuple(zip(starts, values, strict=True)))


def _series(name: str, one: SampleSeries) -> Series:
    times = range(one.start, one.start + one.step_ms * len(one.values), one.step_ms)
    return Series(name, one.step_ms, tuple(zip(times, one.values, strict=True)))


def _in_seconds(one: Series) -> Series:
    points = tuple((at, None if value is None else value / 1000) for at, value in one.points)
    return Series(one.name, one.step_ms, points)
