"""The volumes of topics: what is usual, what is not, and that both survive a restart."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import func, insert, select, update

from headworks._audit.findings import findings
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.tables import COUNTED
from headworks._audit.thresholds import Thresholds
from headworks._audit.volume_bands import TopicVolume, usual_of
from headworks._audit.volumes import judge_volumes, unusual_volumes
from tests.soak import volumes

pytestmark = pytest.mark.unit

WINDOW, DAY = 600_000, 86_400_000
NOW = 40 * DAY
LAST = NOW - 2 * WINDOW  # the window that is judged at NOW


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    opened = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    yield opened
    opened.close()


def steady(
    store: AuditStore, topic: str, volume: Callable[[int], int], *, first: int = 0, end: int = NOW
) -> None:
    """The counts of a topic's producers from `first` on, by window."""
    zeros = dict.fromkeys(COUNTED, 0)
    common = {"tier": "producer", "topic": topic, "first_sent": 0, "last_sent": NOW}
    with store.write() as connection:
        connection.execute(insert(tables.topics), common | {"first_sent": first})
        rows = [
            {**common, **zeros, "window_start": start, "attempted": volume(start)}
            for start in range(first, end, WINDOW)
        ]
        connection.execute(insert(tables.windows), rows)


def judge_all(store: AuditStore, now: int = NOW) -> int:
    judged = 0
    while windows := judge_volumes(store, now):
        judged += windows
    return judged


def by_day(start: int) -> int:
    """Few messages at night, and 300 a window by day."""
    return 30 if DAY // 4 <= start % DAY < DAY // 2 else 300


@pytest.mark.seconds
def test_a_drop_is_found_ten_minutes_after_its_window_and_ends(store: AuditStore) -> None:
    chance = Random(1)

    def noisy(start: int) -> int:
        return round(chance.gauss(by_day(start), by_day(start) ** 0.5))

    steady(store, "steady", noisy)
    steady(store, "drops", lambda start: noisy(start) * 6 // 10 if start >= LAST else noisy(start))
    steady(store, "new", lambda _: 5, first=NOW - DAY)
    steady(store, "rises", lambda start: 900 if start >= LAST else 300)
    assert judge_all(store, NOW - 1) == 3 * 144
    assert unusual_volumes(store, NOW - 1) == {}  # that window ended less than ten minutes ago
    assert judge_all(store, NOW) == 1
    found = {one.key: one for one in findings(store, NOW, Thresholds()) if one.kind == "volume"}
    assert [*found] == ["volume/producer/drops", "volume/producer/rises"]
    assert "1970-02-09T23:40:00Z, and " in found["volume/producer/drops"].text
    assert "% fewer; see what" in found["volume/producer/drops"].text
    assert found["volume/producer/rises"].text.startswith(
        "rises: producers counted 900 messages in the ten minutes from 1970-02-09T23:40:00Z, and "
        "300 are usual then, which is 200% more"
    )
    with store.read() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.volumes)) == 4
        packed = select(func.max(func.length(tables.volumes.c.packed)))
        assert (connection.scalar(packed) or 0) < 6_000
    assert unusual_volumes(store, NOW + 3_600_000) == {}  # nobody has judged it for an hour


@pytest.mark.seconds
def test_a_pause_of_days_starts_over_and_a_short_one_is_caught_up(store: AuditStore) -> None:
    steady(store, "t", by_day, end=NOW + 9 * DAY)
    assert judge_all(store, NOW) == 3 * 144
    assert judge_all(store, NOW + 20 * WINDOW) == 20
    assert judge_all(store, NOW + 9 * DAY) == 3 * 144
    assert unusual_volumes(store, NOW + 9 * DAY) == {}


def test_what_is_packed_is_what_it_was() -> None:
    one = TopicVolume(
        *(0, [1.0] * 19, 3, [1.0, 2.0, 3.0], [0.5]),
        *([0.25] * 6, [0.5, 0.25], [], [0.125, 0.5], [0.125]),
    )
    assert TopicVolume.unpack(0, one.pack()) == one


@pytest.mark.seconds
def test_volumes_that_an_earlier_release_packed_start_over(store: AuditStore) -> None:
    steady(store, "t", by_day)
    judge_all(store)
    earlier = array("f", [0.5, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).tobytes()
    with store.write() as connection:
        connection.execute(update(tables.volumes).values(packed=earlier))
        row = {"topic": "deleted", "window_start": LAST, "packed": earlier}
        zeros = {"counted": 0, "usual": 0, "unusual": 0}
        connection.execute(insert(tables.volumes), row | zeros)
    assert judge_all(store, NOW + WINDOW) == 3 * 144
    with store.read() as connection:
        kept = connection.execute(select(tables.volumes.c.topic, tables.volumes.c.window_start))
        assert kept.all() == [("t", LAST + WINDOW)]


def test_a_topic_is_judged_after_three_weeks() -> None:
    assert usual_of([5, 6]) == -1
    assert usual_of([5, 6, 9]) == 6
    volume = TopicVolume(0, [-1.0] * 19)
    assert all(volume.judge(n, -1.0) is None for n in (1_000, 0, 1_000))


def alarms(volume: TopicVolume, counts: Iterable[int]) -> list[bool]:
    return [volume.judge(n, 300.0) is not None for n in counts]


def known() -> TopicVolume:
    """A topic that has counted its usual 300 messages in every window of five hours."""
    volume = TopicVolume(0, [300.0] * 19)
    assert not any(alarms(volume, [300] * 30))
    return volume


def test_a_drop_does_not_lower_the_level_that_it_is_measured_from() -> None:
    volume = known()
    found = alarms(volume, [210] * 18)
    assert found == [False] + [True] * 17
    assert not any(alarms(volume, [300] * 18))  # it ends with the drop


def test_a_new_volume_is_usual_after_some_hours() -> None:
    found = alarms(known(), [210] * 48)
    assert 18 < found.count(True) < 30
    assert not any(found[30:])


def test_a_topic_that_stops_is_found_in_its_first_window_and_stays_so() -> None:
    assert all(alarms(known(), [0] * 144))


def test_a_slow_fade_is_found() -> None:
    counts = range(300, 100, -2)
    first = next(n for n, unusual in zip(counts, alarms(known(), counts), strict=True) if unusual)
    assert 150 < first < 210


@pytest.mark.seconds
def test_injected_changes_of_real_flights_are_found() -> None:
    report = volumes.replay(20_261_123, ("JFK",), days=90, each=12, rounds=1)
    assert not report.wrong, report
