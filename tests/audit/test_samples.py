"""Samples for charts: what is kept, how long, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from headworks._audit.sampler import Sampler, group_samples
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.samples import (
    MAX_SERIES,
    SampleKind,
    SeriesKey,
    add_samples,
    read_samples,
)
from headworks.errors import UnreachableError
from headworks.groups import GroupDescription, GroupKind, GroupPosition

pytestmark = pytest.mark.unit

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = 20_000 * DAY
LAG: SeriesKey = (SampleKind.GROUP_LAG, "g")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    opened = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    yield opened
    opened.close()


def values(store: AuditStore, since: int, until: int, now: int = 0) -> list[tuple[int, float]]:
    found = read_samples(store, *LAG, since=since, until=until, now=now or until)
    times = range(found.start, until, found.step_ms)
    return [(at, v) for at, v in zip(times, found.values, strict=True) if v is not None]


def test_an_hour_has_its_minutes_and_a_gap_stays_a_gap(store: AuditStore) -> None:
    for minute in (1, 2, 59, 60, 61):
        add_samples(store, START + minute * MINUTE + 500, {LAG: minute})
    found = values(store, START + MINUTE, START + HOUR + MINUTE)
    assert found == [(START + n * MINUTE, n) for n in (1, 2, 59, 60)]
    assert values(store, START, START + MINUTE) == []


def test_a_day_has_ten_minutes_each_with_its_last_sample(store: AuditStore) -> None:
    for minute in range(25):
        add_samples(store, START + minute * MINUTE, {LAG: minute})
    found = values(store, START, START + DAY)
    assert found == [(START + n * 10 * MINUTE, v) for n, v in enumerate((9, 19, 24))]


def test_an_hour_of_yesterday_has_the_ten_minutes_that_are_kept(store: AuditStore) -> None:
    for minute in range(25):
        add_samples(store, START + minute * MINUTE, {LAG: minute})
    add_samples(store, START + DAY, {LAG: 5})
    hour = START, START + HOUR
    assert len(values(store, *hour, now=START + 3 * HOUR)) == 0  # the minutes have expired
    ten = [(START + n * 10 * MINUTE, v) for n, v in enumerate((9, 19, 24))]
    assert values(store, *hour, now=START + DAY) == ten


def test_the_store_is_bounded_in_time_and_in_series(store: AuditStore) -> None:
    many: dict[SeriesKey, float] = {(SampleKind.LOG_END, f"t{n:05}"): n for n in range(MAX_SERIES)}
    add_samples(store, START, {**many, LAG: 1})
    with store.read() as connection:
        rows = connection.scalar(select(func.count()).select_from(tables.samples))
    assert rows == 2 * MAX_SERIES
    assert values(store, START, START + HOUR) == [(START, 1)]  # groups come first
    for days in range(1, 30):
        add_samples(store, START + days * DAY, {LAG: days})
    with store.read() as connection:
        rows = connection.scalar(select(func.count()).select_from(tables.samples))
    assert rows == 1 + 10
    assert values(store, START + 21 * DAY, START + 30 * DAY)[0][1] == 21


def test_a_group_has_its_lag_and_the_age_of_its_oldest_message() -> None:
    def group(*positions: GroupPosition) -> GroupDescription:
        return GroupDescription("g", GroupKind.CLASSIC, True, "stable", (), positions)

    def position(lag: int | None, behind: int | None) -> GroupPosition:
        end = None if lag is None else 10 + lag
        return GroupPosition("t", 0, 10, 0, end, behind, None)

    age = (SampleKind.GROUP_AGE, "g")
    assert group_samples([group(position(3, 500), position(4, 900))]) == {LAG: 7, age: 900}
    assert group_samples([group(position(0, 0))]) == {LAG: 0, age: 0}
    assert group_samples([group(position(3, None))]) == {LAG: 3}  # it could not be read in time
    assert group_samples([group()]) == {}


def test_a_broker_that_is_away_leaves_a_gap_and_one_warning(
    store: AuditStore, caplog: pytest.LogCaptureFixture
) -> None:
    now = [START]
    answers: list[dict[SeriesKey, float] | None] = [{LAG: 1}, None, None, {LAG: 4}]

    def measure() -> dict[SeriesKey, float]:
        found = answers.pop(0)
        if found is None:
            raise UnreachableError("no broker answers")
        return found

    sampler = Sampler(store, measure, now=lambda: now[0])
    while answers:
        sampler.sample()
        now[0] += MINUTE
    assert values(store, START, START + HOUR) == [(START, 1), (START + 3 * MINUTE, 4)]
    assert caplog.text.count("no broker answers") == 1
