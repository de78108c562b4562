"""The first page: red if something is wrong, and green for an hour of healthy traffic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from headworks._audit import queries
from headworks._audit.findings import AuditFinding, findings
from headworks._audit.increments import CountedRange, Increment
from headworks._audit.results import Holes
from headworks._audit.store import AuditStore
from headworks._audit.store.cuts import take_cut
from headworks._audit.thresholds import Thresholds
from headworks._console.app.visibility import ALL_VISIBLE
from headworks._console.sources import Poller
from headworks._console.sources.audits import AuditSnapshot, settled_sums
from headworks._console.sources.group_state import GroupState
from headworks._console.sources.groups import GroupRow, GroupsSnapshot, StateSince, state_since
from headworks._console.sources.loads import LoadRun, LoadsSnapshot
from headworks._console.sources.poller import SourceState
from headworks._console.sources.subjects import SubjectRow, SubjectsSnapshot
from headworks._console.views.checks import (
    CheckLevel,
    HealthCheck,
    disk_check,
    groups_check,
    is_well,
    loads_check,
    producers_check,
    quarantine_check,
    reconciler_check,
    source_check,
    topics_check,
    verdict,
)
from headworks._console.views.health import HealthPage, health_page
from headworks._console.views.paging import ListQuery
from headworks.groups import GroupDescription, GroupKind
from tests.audit.test_store import WINDOW, add, increment

pytestmark = pytest.mark.unit

MINUTE = 60_000
START = 1_000 * WINDOW
TOPIC = "clicks"


def run(number: int, at: int, quarantined: int = 0) -> LoadRun:
    return LoadRun(number, at, (TOPIC,), 1, 1, 1, quarantined, 0, applied=True)


def source(state: SourceState) -> HealthCheck:
    return source_check(state, "/topics", hangs_after=4.0)


def test_a_server_that_hangs_is_red_before_its_time_is_up() -> None:
    now = [0.0]
    hangs, asked = Event(), Event()

    def read() -> int:
        if now[0] > 0:
            asked.set()
            hangs.wait(60)
        return 1

    poller = Poller("broker", read, interval=3600, clock=lambda: now[0])
    poller.refresh()
    assert source(poller.latest.state).level is CheckLevel.GOOD
    now[0] = 3.0
    reading = Thread(target=poller.refresh)
    reading.start()
    try:
        assert asked.wait(60)
        now[0] = 10.0
        found = source(poller.latest.state)
        assert found.level is CheckLevel.BAD
        assert "no answer for 7 s; it last answered 10 s ago" in found.says
    finally:
        hangs.set()
        reading.join()


@pytest.mark.parametrize(
    ("state", "level"),
    [
        (SourceState("broker", None), CheckLevel.UNKNOWN),
        (SourceState("broker", 2.0), CheckLevel.GOOD),
        (SourceState("broker", 2.0, None, None, 1.0), CheckLevel.GOOD),
        (SourceState("broker", 2.0, "no broker answers"), CheckLevel.BAD),
        (SourceState("broker", 100.0), CheckLevel.UNKNOWN),
    ],
)
def test_a_source(state: SourceState, level: CheckLevel) -> None:
    assert source(state).level is level


def test_loads_are_late_against_their_own_schedule() -> None:
    runs = tuple(run(n, n * 10 * MINUTE) for n in range(8, 0, -1))
    assert loads_check(LoadsSnapshot(runs), 100 * MINUTE).level is CheckLevel.GOOD
    late = loads_check(LoadsSnapshot(runs), 120 * MINUTE)
    assert late.level is CheckLevel.BAD
    assert "load 8 was 40 min ago, and they come every 10 min" in late.says
    assert loads_check(LoadsSnapshot(), 0).level is CheckLevel.UNKNOWN


def group(name: str, state: GroupState, since: StateSince) -> GroupRow:
    described = GroupDescription(name, GroupKind.CLASSIC, False, "empty", (), ())
    return GroupRow(described, (TOPIC,), state, "", since, ())


def test_groups_are_named_with_the_time_since_when_they_are_not_well() -> None:
    some = [group(f"g{n}", GroupState.STOPPED, StateSince(n * MINUTE, n == 0)) for n in range(5)]
    some.append(group("slow", GroupState.BEHIND, StateSince(7 * MINUTE, earlier=False)))
    some.append(group("fine", GroupState.OK, StateSince(0, earlier=True)))
    check = groups_check(GroupsSnapshot({one.group.name: one for one in some}, {}), ALL_VISIBLE)
    assert check.level is CheckLevel.BAD
    assert check.says == (
        "stopped: g0 since 1970-01-01 00:00 UTC or earlier, g1 since 1970-01-01 00:01 UTC, "
        "g2 since 1970-01-01 00:02 UTC, and 2 more; "
        "falling behind: slow since 1970-01-01 00:07 UTC"
    )


def test_a_state_begins_when_it_is_first_read_and_maybe_earlier_at_the_first_reading() -> None:
    begun = state_since(None, "g", GroupState.STALLED, 5)
    assert begun == StateSince(5, earlier=True)
    rows = {"g": group("g", GroupState.STALLED, begun)}
    assert state_since(rows, "g", GroupState.STALLED, 9) == begun
    assert state_since(rows, "g", GroupState.OK, 9) == StateSince(9, earlier=False)
    assert state_since(rows, "new", GroupState.STALLED, 9) == StateSince(9, earlier=False)


def test_quarantine_refusals_and_disk() -> None:
    loads = LoadsSnapshot((run(1, 0, 7),), {}, ("a",), ("b", "c"), 0.02)
    kept = quarantine_check(loads, None, ALL_VISIBLE, MINUTE)
    assert kept.level is CheckLevel.WARN
    assert kept.says.startswith("7 messages in the last day, since 1970-01-01 00:00 UTC: ")
    assert quarantine_check(loads, None, ALL_VISIBLE, 2_000 * MINUTE).level is CheckLevel.GOOD
    topics = topics_check(loads, None, ALL_VISIBLE)
    assert topics is not None
    assert topics.says == "a is refused by the last load; b, c are without a schema, and not loaded"
    assert topics_check(LoadsSnapshot(), None, ALL_VISIBLE) is None
    disk = disk_check(loads)
    assert disk is not None
    assert disk.level is CheckLevel.BAD
    assert verdict([topics, disk]) == "Look at: topics, disk."
    assert verdict([]) == "Everything is being read."


def test_what_is_not_well_names_its_owner() -> None:
    owned = SubjectRow("b-value", "b", 1, 1, None, "B", 1, "ada", None, sensitive=False)
    subjects = SubjectsSnapshot({owned.subject: owned})
    loads = LoadsSnapshot((run(1, 0),), {}, ("a", "b"))
    topics = topics_check(loads, subjects, ALL_VISIBLE)
    assert topics is not None
    assert topics.says == "a, b (owner ada) are refused by the last load"
    quiet = (AuditFinding("quiet", "quiet/b", "producer", "b", "b: none since noon"),)
    audit = AuditSnapshot(Thresholds(), {}, Holes(0, 0), quiet)
    producers = producers_check(audit, subjects, ALL_VISIBLE)
    assert producers is not None
    assert producers.says == "b: none since noon (owner ada)"


def test_a_reconciler_that_stopped_is_red() -> None:
    known = AuditSnapshot(Thresholds(), {}, Holes(0, 0), checked_at=0)
    assert reconciler_check(known, MINUTE).level is CheckLevel.GOOD
    assert reconciler_check(known, 5 * MINUTE).level is CheckLevel.BAD
    nobody = AuditSnapshot(None, {}, Holes(0, 0))
    assert reconciler_check(nobody, 0).level is CheckLevel.WARN


class Pipeline:
    """A topic with a producer, a log, and a loader, minute by minute."""

    def __init__(self, store: AuditStore) -> None:
        self.store, self.end, self.loaded, self.number = store, 0, 0, 0
        self.waiting: Counter[int] = Counter()  # messages that the loader has not read, by window

    def produce(self, now: int, n: int, dropped: int = 0) -> None:
        window = (now - MINUTE) // WINDOW
        counts = {"attempted": n + dropped, "delivered": n, "dropped:queue_full": dropped}
        self._add(increment(TOPIC, "producer", window, counts, sent_at=now), now)
        self.waiting[window] += n
        self.end += n

    def load(self, now: int, lost: int = 0) -> None:
        self.number += 1
        ranges = (CountedRange(0, self.loaded, self.end),)
        for window, n in self.waiting.items():
            counts = {"loaded": n - lost}
            one = increment(
                TOPIC, "hadoop", window, counts, sent_at=now, commit=self.number, ranges=ranges
            )
            self._add(one, now)
            lost = 0
        self.loaded = self.end
        self.waiting.clear()

    def _add(self, one: Increment, now: int) -> None:
        add(self.store, one, at=now)

    def page(self, now: int) -> HealthPage:
        assert take_cut(self.store, lambda _: {TOPIC: {0: (0, self.end)}}, now)
        seen = tuple(findings(self.store, now, Thresholds()))
        health = {"hadoop": queries.health(self.store, now=now)}
        settled = {
            tier: settled_sums(one, now, Thresholds().complete_within_ms)
            for tier, one in health.items()
        }
        audit = AuditSnapshot(
            Thresholds(), health, queries.holes(self.store), seen, now, settled=settled
        )
        return health_page(audit, None, None, ALL_VISIBLE, ListQuery(), tier="hadoop", now_ms=now)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(AuditStore(f"sqlite:///{tmp_path / 'audit.db'}"))


@pytest.mark.seconds
def test_an_hour_of_healthy_traffic_is_green(pipeline: Pipeline) -> None:
    chance, next_load = Random(1), 0
    for minute in range(60):
        now = START + minute * MINUTE
        if minute >= next_load:
            pipeline.load(now)
            next_load = minute + chance.randint(4, 15)
        pipeline.produce(now, chance.randint(500, 700))
        page = pipeline.page(now + 10_000)
        assert page.well, (minute, page.verdict, page.checks)
        assert not page.troubles, (minute, page.troubles)
        # What waits for the next load is no loss, and has not arrived either.
        assert [row.arrived_share for row in page.part.rows] in ([1.0], [None]), minute
        assert {cell.grade for row in page.part.rows for cell in row.cells} <= {0, 1, 2}


def test_a_loss_and_drops_are_red_once_they_are_due_and_waiting_is_not(pipeline: Pipeline) -> None:
    pipeline.produce(START + MINUTE, 600, dropped=30)
    pipeline.load(START + 4 * MINUTE, lost=37)
    assert pipeline.page(START + 5 * MINUTE).well
    pipeline.produce(START + 38 * MINUTE, 500)
    page = pipeline.page(START + 39 * MINUTE)
    assert page.well
    page = pipeline.page(START + 41 * MINUTE)
    assert not page.well
    assert page.verdict == "Look at: messages."
    assert page.sentence == (
        "37 of 1,130 messages of 1 topic were lost before hadoop, 30 were dropped by producers. "
        "500 more wait for the next load."
    )
    assert [one.kind for one in page.troubles] == ["lost", "dropped", "silent"]  # not by name
    assert is_well(page.checks) is page.well
    check = next(one for one in page.checks if one.name == "messages")
    assert check.says == f"{page.sentence} The worst topic is clicks, since 1970-01-07 22:40 UTC."
    assert check.link == f"/audit/{TOPIC}/windows"


def test_late_messages_wait_for_their_load_without_an_alarm(pipeline: Pipeline) -> None:
    pipeline.produce(START + MINUTE, 600)
    pipeline.load(START + 4 * MINUTE)
    assert pipeline.page(START + 5 * MINUTE).well
    late = increment(
        TOPIC,
        "producer",
        START // WINDOW,
        {"attempted": 9, "delivered": 9},
        sent_at=START + 100 * MINUTE,
    )
    add(pipeline.store, late, at=START + 100 * MINUTE)
    pipeline.end += 9
    page = pipeline.page(START + 110 * MINUTE)
    assert page.well
    assert page.sentence.endswith("9 more wait for the next load.")
    assert not [one for one in page.troubles if one.kind == "overdue"]
    page = pipeline.page(START + 131 * MINUTE)
    assert not page.well
    assert "9 of 609 messages of 1 topic were not read for too long" in page.sentence
    assert [one.kind for one in page.troubles if one.kind == "overdue"] == ["overdue"]
