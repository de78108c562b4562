"""Charts: axes, scales, gaps, and what they are drawn from."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from headworks._audit.balance import Balance
from headworks._audit.results import TierLine, TimeToComplete, TopicAudit, WindowState
from headworks._audit.store.samples import SampleSeries
from headworks._console.views.charts import (
    MAX_SLOTS,
    WIDTH,
    Period,
    Reduce,
    Series,
    Unit,
    chart,
    rate_of,
    shown_period,
    time_axis,
)
from headworks._console.views.history import SampledTopic, audit_chart, topic_charts

pytestmark = pytest.mark.unit

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 20_000 * DAY + 7 * HOUR + 21 * MINUTE
WINDOW = 10 * MINUTE


def points(start: int, step: int, values: list[float | None]) -> list[tuple[int, float | None]]:
    return [(start + n * step, value) for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("span", "first", "last", "count"),
    [("hour", "06:30", "07:30", 7), ("day", "08:00", "08:00", 7), ("week", "28 Sep", "05 Oct", 8)],
)
def test_an_axis_ends_now_and_has_labels_at_whole_units(
    span: str, first: str, last: str, count: int
) -> None:
    axis = time_axis(span, NOW)
    assert (axis.labels[0], axis.labels[-1], len(axis.labels)) == (first, last, count)
    assert axis.start < NOW <= axis.end


def test_a_period_leads_to_the_one_before_and_after() -> None:
    axis, newest = shown_period("hour", NOW, None)
    assert (axis, newest) == (
        time_axis("hour", NOW),
        Period(axis.start, axis.end, is_newest=True, later=None),
    )
    axis, before = shown_period("hour", NOW, newest.start)
    assert (axis.end, before.is_newest, before.later) == (newest.start, False, None)
    _, earlier = shown_period("hour", NOW, before.start)
    assert (earlier.end, earlier.later) == (before.start, before.end)
    assert shown_period("hour", NOW, NOW + DAY)[1] == newest
    assert shown_period("week", NOW, 0)[1].start == 0


def test_a_line_breaks_where_nothing_is_known() -> None:
    axis = time_axis("hour", NOW)
    values: list[float | None] = [1, 2, None, 4, None, 8]
    found = chart(
        "x", Unit.MESSAGES, axis, [Series("a", MINUTE, points(axis.start, MINUTE, values))]
    )
    (line,) = found.lines
    assert line.path.count("M") == 3
    assert line.path.count("L") == 1
    assert line.path.count("h") == 2  # a value alone is as wide as its slot
    assert [slot.values for slot in found.slots] == [("1",), ("2",), ("4",), ("8",)]
    assert found.y_labels == ("8", "6", "4", "2", "0")
    assert (line.last, line.worst) == ("8", "8")
    shares = [Series("a", MINUTE, points(axis.start, MINUTE, [1, 0.5, None, 0.75]))]
    (line,) = chart("x", Unit.SHARE, axis, shares).lines
    assert (line.last, line.worst) == ("75 %", "50 %")


@pytest.mark.parametrize(
    ("unit", "most", "labels"),
    [
        (Unit.MESSAGES, 3, ("3", "2", "1", "0")),
        (Unit.MESSAGES, 1_990, ("2,000", "1,500", "1,000", "500", "0")),
        (Unit.MESSAGES, 0, ("1", "0")),
        (Unit.RATE, 0.3, ("0.3", "0.2", "0.1", "0")),
        (Unit.SECONDS, 700, ("15 min", "10 min", "5 min", "0 s")),
        (Unit.SECONDS, 40 * 86_400, ("40 d", "30 d", "20 d", "10 d", "0 s")),
        (Unit.SHARE, 0.9995, ("100 %", "99.95 %", "99.9 %")),
        (Unit.SHARE, 0.2, ("100 %", "50 %", "0 %")),
    ],
)
def test_a_scale_has_round_labels(unit: Unit, most: float, labels: tuple[str, ...]) -> None:
    axis = time_axis("hour", NOW)
    found = chart("x", unit, axis, [Series("a", MINUTE, [(axis.start, most)])])
    if unit is Unit.SECONDS and most > 86_400:
        assert len(found.y_labels) >= 3
    else:
        assert found.y_labels == labels
    ys = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", found.lines[0].path)]
    assert all(0 <= y <= 200 for y in ys)


def test_a_week_is_reduced_to_the_largest_of_each_slot() -> None:
    axis = time_axis("week", NOW)
    values: list[float | None] = [float(n) for n in range(1_008)]
    series = [Series("a", WINDOW, points(axis.start, WINDOW, values))]
    found = chart("x", Unit.MESSAGES, axis, series)
    assert len(found.slots) <= MAX_SLOTS
    assert found.slots[0].values == ("5",)
    assert chart("x", Unit.MESSAGES, axis, series, Reduce.MIN).slots[0].values == ("0",)
    last = found.slots[-1]
    assert round(last.x + last.width) == WIDTH


def test_a_rate_is_the_growth_of_a_counter_and_unknown_where_it_shrinks() -> None:
    series = Series("a", MINUTE, points(0, MINUTE, [0, 60, None, 300, 180, 240]))
    assert [value for _, value in rate_of(series).points] == [1.0, None, None, None, 1.0]


def state(start: int, attempted: int, loaded: int, complete_at: int | None) -> WindowState:
    counts: dict[str, Any] = {field.name: 0 for field in fields(Balance)}
    counts |= {"topic": "t", "window_start": start, "attempted": attempted, "referenced": True}
    counts |= {"delivered": attempted, "loaded": loaded, "lost": attempted - loaded}
    balance = Balance(**counts)
    return WindowState(balance, start, start, start, start, complete_at)


def test_a_topic_has_its_rate_the_lag_of_its_groups_and_its_completeness() -> None:
    axis = time_axis("hour", NOW)
    start = axis.start
    ends = SampleSeries(start - MINUTE, MINUTE, (0.0, 120.0, 240.0))
    lag = SampleSeries(start, MINUTE, (5.0, None, 7.0))
    cells = (state(start, 10, 10, start + WINDOW + 30_000), state(start + WINDOW, 10, 5, None))
    audit = TopicAudit(
        "t",
        (start, start + WINDOW),
        (10, 10),
        (TierLine("hadoop", cells, TimeToComplete("hadoop", 2, 1, 30.0, None, None)),),
        {},
    )
    sampled = SampledTopic(ends, {"g": lag}, {})
    found = {one.title: one for one in topic_charts(axis, sampled, audit, lambda _state: True)}
    rate, lags, delay, arrived, took = found.values()
    assert [slot.values for slot in rate.slots] == [("2",), ("2",)]
    assert [slot.values for slot in lags.slots] == [("5",), ("7",)]
    assert delay.slots == ()
    assert [slot.values for slot in arrived.slots] == [("100 %",), ("50 %",)]
    assert [slot.values for slot in took.slots] == [("30 s",)]
    early = topic_charts(axis, sampled, audit, lambda _state: False)
    assert [slot.values for slot in early[3].slots] == [("100 %",)]  # it may still arrive


def test_event_times_years_apart_make_no_long_chart() -> None:
    windows = (0, 400_000 * WINDOW, 400_001 * WINDOW)
    cells = tuple(state(start, 3, 3, None) for start in windows)
    audit = TopicAudit(
        "t", windows, (3, 3, 3), (TierLine("h", cells, TimeToComplete("h", 3, 0, *[None] * 3)),), {}
    )
    found = audit_chart(audit)
    assert found is not None
    assert [line.name for line in found.lines] == ["attempted by producers", "arrived at h"]
    assert len(found.slots) == 2
    assert len(found.x_labels) < 10
