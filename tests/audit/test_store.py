"""The store against a brute-force count: redelivery, restarts, order and lateness never matter."""

from __future__ import annotations

import itertools
import random
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event, select

from headworks._audit import queries
from headworks._audit.balance import total
from headworks._audit.contributions import applications, contributions
from headworks._audit.increments import CountedRange, Increment
from headworks._audit.results import Holes
from headworks._audit.store import AuditStore, tables
from headworks._audit.store.apply import IncrementBatch, PositionsMovedError, apply, positions
from headworks._audit.store.cuts import take_cut

pytestmark = pytest.mark.unit

WINDOW = 600_000
DAY = 86_400_000
NOW = 10 * DAY


def increment(
    topic: str,
    tier: str,
    window: int,
    counts: dict[str, int],
    *,
    sent_at: int = 0,
    host: str = "host",
    commit: int | None = None,
    ranges: tuple[CountedRange, ...] = (),
) -> Increment:
    name = str(uuid.uuid4())
    start = window * WINDOW
    return Increment(name, topic, tier, start, counts, 0, host, "app", sent_at, commit, ranges)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    opened = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    yield opened
    opened.close()


def add(store: AuditStore, *increments: Increment, at: int = 0) -> int:
    with store.read() as connection:
        start = positions(connection)
    end = {0: start.get(0, 0) + len(increments)}
    return apply(store, IncrementBatch(start, end, increments, at, live=True))


def pass_all(store: AuditStore) -> None:
    """As if every topic had been deleted after it was loaded: nothing may still come."""
    assert take_cut(store, lambda topics: {topic: {} for topic in topics}, NOW)


@dataclass(frozen=True)
class Report:
    topic: str
    tier: str
    window: int
    first: int
    second: int
    sent_at: int


reports = st.lists(
    st.builds(
        Report,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["producer", "hadoop", "consumer:g"]),
        st.integers(0, 3),
        st.integers(0, 60),
        st.integers(0, 3),
        st.integers(0, 3 * DAY),
    ),
    max_size=40,
)


def as_increment(report: Report) -> Increment:
    if report.tier == "producer":
        lost = min(report.first, report.second)
        counts = {"attempted": report.first, "delivered": report.first - lost, "unresolved": lost}
    else:
        first, second = (
            ("loaded", "quarantined")
            if report.tier == "hadoop"
            else (
                "consumed",
                "skipped",
            )
        )
        counts = {first: report.first, second: report.second}
    counts = {name: n for name, n in counts.items() if n}
    return increment(report.topic, report.tier, report.window, counts, sent_at=report.sent_at)


def expected_answer(given_reports: list[Report], tier: str) -> dict[tuple[str, int], list[object]]:
    """Missing, surplus and the moment of 99.9 %, counted one report at a time."""
    found: dict[tuple[str, int], list[object]] = {}
    referenced = {r.topic for r in given_reports if r.tier == "producer"}
    for topic in {r.topic for r in given_reports}:
        for window in {r.window for r in given_reports if r.topic == topic}:
            here = [r for r in given_reports if (r.topic, r.window) == (topic, window)]
            if not any(r.tier in (tier, "producer") for r in here):
                continue
            sent = sum(r.first for r in here if r.tier == "producer")
            seen = sorted((r for r in here if r.tier == tier), key=lambda r: -(-r.sent_at // 1000))
            arrived, moment = 0, None
            for at in sorted({-(-r.sent_at // 1000) for r in seen}):
                arrived += sum(r.first + r.second for r in seen if -(-r.sent_at // 1000) == at)
                if moment is None and sent and arrived >= 0.999 * sent and arrived:
                    moment = at * 1000
            known = topic in referenced
            found[topic, window * WINDOW] = [
                max(0, sent - arrived) if known else 0,
                max(0, arrived - sent) if known else 0,
                moment,
            ]
    return found


@pytest.mark.seconds
@given(reports, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_any_order_redelivery_restart_and_rival_give_the_brute_force_answer(
    given_reports: list[Report], chance: random.Random
) -> None:
    increments = [as_increment(report) for report in given_reports]
    topic = increments + [i for i in increments if chance.random() < 0.5]
    chance.shuffle(topic)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/audit.db"
        store = AuditStore(url)
        at = 0
        while at < len(topic):
            end = min(len(topic), at + chance.randint(1, 15))
            batch = IncrementBatch({0: at} if at else {}, {0: end}, topic[at:end], 0, live=False)
            apply(store, batch)
            if chance.random() < 0.3:  # a rival that read the same, or this one after a crash
                with pytest.raises(PositionsMovedError):
                    apply(store, batch)
            if chance.random() < 0.3:
                store.close()
                store = AuditStore(url)
            at = end
        for tier in ("hadoop", "consumer:g"):
            answer = expected_answer(given_reports, tier)
            rows = queries.balances(store, tier)
            assert {(r.topic, r.window_start): [r.missing, r.surplus] for r in rows} == {
                key: value[:2] for key, value in answer.items()
            }
            sums = queries.topic_sums(store, tier)
            for row in sums:
                mine = [v for (t, _), v in answer.items() if t == row.topic]
                assert row.missing == sum(int(str(v[0])) for v in mine)
                assert row.surplus == sum(int(str(v[1])) for v in mine)
            for name in {t for t, _ in answer}:
                page = queries.topic_audit(store, name, now=NOW)
                for line in page.tiers:
                    if line.tier == tier:
                        assert {
                            c.window_start: c.complete_at for c in line.cells if c is not None
                        } == {w: v[2] for (t, w), v in answer.items() if t == name}
        store.close()


def test_a_batch_of_a_topic_that_is_gone_is_refused(store: AuditStore) -> None:
    found = IncrementBatch({}, {0: 5}, (), 0, False, {(0, 4): "no"}, new_topic_id="old")
    apply(store, found)
    slow = IncrementBatch({0: 5}, {0: 8}, (), 0, live=False, topic_id="old")
    begin = IncrementBatch({0: 5}, {0: 0}, (), 0, False, missed=2, topic_id="old")
    apply(store, replace(begin, new_topic_id="new"))
    again = IncrementBatch({0: 0}, {0: 5}, (), 0, False, {(0, 4): "no"}, topic_id="new")
    apply(store, again)
    with pytest.raises(PositionsMovedError):
        apply(store, slow)
    assert queries.holes(store) == Holes(unreadable=1, missed=3)
    apply(store, replace(slow, topic_id=""))  # a broker that tells no ids


class DeathError(Exception):
    """In the place of a process's end."""


@contextmanager
def dying_at(step: int) -> Iterator[None]:
    """The process's end at a statement, or where the transaction commits."""
    left = step

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise DeathError

    for what in ("before_cursor_execute", "commit"):
        event.listen(Engine, what, count)
    try:
        yield
    finally:
        for what in ("before_cursor_execute", "commit"):
            event.remove(Engine, what, count)


def everything(store: AuditStore) -> list[Any]:
    with store.read() as connection:
        return [
            connection.execute(select(table)).all()
            for table in (tables.positions, tables.increments, tables.windows, tables.topics)
        ]


def test_a_death_at_any_step_leaves_counts_and_offsets_in_step(store: AuditStore) -> None:
    add(store, increment("t", "producer", 0, {"attempted": 5, "delivered": 5}))
    before = everything(store)
    loaded = increment("t", "hadoop", 0, {"loaded": 4, "quarantined": 1})
    batch = IncrementBatch({0: 1}, {0: 2}, [loaded], 0, live=True)
    for step in range(1, 100):
        try:
            with dying_at(step):
                apply(store, batch)
        except DeathError:
            assert everything(store) == before, step
        else:
            break
    assert step > 10
    after = everything(store)
    assert after[0] == [(0, 2)]
    assert queries.balances(store, "hadoop")[0].complete


def test_a_copy_of_an_increment_counts_once_within_a_batch_and_later(store: AuditStore) -> None:
    one = increment("t", "producer", 0, {"attempted": 5, "delivered": 5})
    assert add(store, one, one) == 1
    assert add(store, one) == 0
    assert queries.topic_sums(store, "hadoop")[0].waiting == 5


def test_messages_of_a_killed_producer_are_unresolved_unless_they_arrived(
    store: AuditStore,
) -> None:
    add(store, increment("t", "producer", 0, {"attempted": 10, "delivered": 6, "unresolved": 4}))
    add(store, increment("t", "hadoop", 0, {"loaded": 7}))
    (row,) = queries.balances(store, "hadoop")
    assert (row.lost, row.surplus, row.unresolved, row.abandoned) == (0, 0, 3, 0)
    pass_all(store)  # and now they can no longer arrive
    (row,) = queries.balances(store, "hadoop")
    assert (row.lost, row.unresolved, row.abandoned, row.losses) == (0, 3, 3, 3)


def test_what_a_tier_does_not_know_the_fate_of_is_its_own(store: AuditStore) -> None:
    mirror = "mirror:m"
    add(store, increment("t", "producer", 0, {"attempted": 10, "delivered": 9, "unresolved": 1}))
    add(store, increment("t", mirror, 0, {"attempted": 13, "mirrored": 10, "unresolved": 3}))
    (row,) = queries.balances(store, mirror)
    (summed,) = queries.topic_sums(store, mirror)
    for found in (row, summed, total([row])):
        assert (found.unresolved, found.unsure, found.missing, found.surplus) == (0, 3, 0, 0)
    assert [found.unsure for found in queries.topic_sums(store, "hadoop")] == [0]


def test_what_failed_and_arrived_all_the_same_is_no_duplicate(store: AuditStore) -> None:
    add(store, increment("t", "producer", 0, {"attempted": 10, "delivered": 8, "failed": 2}))
    add(store, increment("t", "hadoop", 0, {"loaded": 9}))
    (row,) = queries.balances(store, "hadoop")
    assert (row.missing, row.surplus, row.failed) == (0, 0, 1)


def test_time_to_complete_waits_for_windows_that_are_not(store: AuditStore) -> None:
    for window in range(4):
        sent = {"attempted": 1000, "delivered": 1000}
        add(store, increment("t", "producer", window, sent))
    for window, seconds in ((0, 10), (1, 20), (2, 30)):
        half = (window + 1) * WINDOW + seconds * 1000
        add(store, increment("t", "hadoop", window, {"loaded": 998}, sent_at=half - 5000))
        add(store, increment("t", "hadoop", window, {"loaded": 1}, sent_at=half))
    found = queries.time_to_complete(store, "hadoop")
    assert (found.windows, found.complete) == (4, 3)
    assert (found.p50, found.p95, found.p99) == (20.0, None, None)


def test_late_data_reopens_a_window(store: AuditStore) -> None:
    add(store, increment("t", "producer", 0, {"attempted": 1, "delivered": 1}, sent_at=WINDOW))
    add(store, increment("t", "hadoop", 0, {"loaded": 1}, sent_at=WINDOW + 1))
    line = queries.topic_audit(store, "t", now=NOW).tiers[0]
    assert line.cells[0] is not None
    assert not line.cells[0].reopened
    add(store, increment("t", "producer", 0, {"attempted": 1, "delivered": 1}, sent_at=2 * DAY))
    cell = queries.topic_audit(store, "t", now=NOW).tiers[0].cells[0]
    assert cell is not None
    assert cell.reopened
    assert (cell.balance.waiting, cell.complete_at) == (1, None)


def test_the_heatmap_shows_the_worst_topics_first_and_a_page_of_them(store: AuditStore) -> None:
    for n in range(20):
        sent = increment(f"topic{n:02}", "producer", n % 3, {"attempted": 100, "delivered": 100})
        add(store, sent, increment(f"topic{n:02}", "hadoop", n % 3, {"loaded": 100 - n}))
    pass_all(store)
    page = queries.health(store, now=NOW, limit=5)
    assert [row.sum.topic for row in page.rows] == [f"topic{n}" for n in (19, 18, 17, 16, 15)]
    assert (page.topics, page.bad, page.sum.lost) == (20, 19, sum(range(20)))
    assert page.windows == (0, WINDOW, 2 * WINDOW)
    assert [cell is None for cell in page.rows[0].cells] == [True, False, True]
    beyond = queries.health(store, now=NOW, limit=5, offset=15, containing="topic")
    assert [row.sum.topic for row in beyond.rows] == [f"topic0{n}" for n in (4, 3, 2, 1, 0)]


def test_some_windows_of_a_topic_are_counted_together(store: AuditStore) -> None:
    for window, host in itertools.product(range(3), ("web1", "web2")):
        counts = {"attempted": 10 + window, "delivered": 10}
        add(store, increment("t", "producer", window, counts, host=host))
    add(store, increment("t", "hadoop", 0, {"loaded": 20}, host="etl"))
    add(store, increment("other", "producer", 0, {"attempted": 7}, host="web3"))
    found = contributions(store, "t", [0, WINDOW])
    sums = {(one.tier, one.host): (one.counts, one.increments) for one in found}
    assert sums == {
        ("producer", "web1"): ({"attempted": 21, "delivered": 20}, 2),
        ("producer", "web2"): ({"attempted": 21, "delivered": 20}, 2),
        ("hadoop", "etl"): ({"loaded": 20}, 1),
    }
    (named,) = {one.application for one in found if one.tier == "producer"}
    assert applications(store, "t", [0, WINDOW], "producer") == (named,)
    assert applications(store, "t", [], "producer") == ()
    assert applications(store, "unknown", [0], "producer") == ()


def test_explain_names_hosts_offsets_and_loads(store: AuditStore) -> None:
    add(
        store,
        increment("t", "producer", 0, {"attempted": 3, "delivered": 3}, host="web1", sent_at=5),
        increment("t", "producer", 0, {"attempted": 4, "delivered": 4}, host="web2", sent_at=6),
        increment("t", "producer", 0, {"attempted": 1, "delivered": 1}, host="web1", sent_at=9),
        increment(
            "t", "hadoop", 0, {"loaded": 7}, host="etl", commit=12, ranges=(CountedRange(0, 5, 12),)
        ),
    )
    found = queries.explain(store, "t", 0)
    web1 = next(c for c in found.contributions if c.host == "web1")
    assert (web1.counts, web1.increments) == ({"attempted": 4, "delivered": 4}, 2)
    assert (web1.first_sent, web1.last_sent) == (5, 9)
    (load,) = found.loads
    assert (load.load, load.ranges, load.counts) == (12, (CountedRange(0, 5, 12),), {"loaded": 7})
    assert found.states["hadoop"].balance.waiting == 1


def test_a_topic_without_producer_counts_claims_nothing(store: AuditStore) -> None:
    add(store, increment("t", "hadoop", 0, {"loaded": 7}))
    (row,) = queries.topic_sums(store, "hadoop")
    assert (row.missing, row.surplus, row.referenced) == (0, 0, False)


def test_a_topic_that_was_never_loaded_has_the_line_of_the_loader(store: AuditStore) -> None:
    add(store, increment("t", "producer", 0, {"attempted": 9, "dropped:x": 2, "delivered": 7}))
    assert queries.topic_audit(store, "t", now=NOW).tiers == ()  # nothing is loaded here
    add(store, increment("other", "hadoop", 0, {"loaded": 1}))
    (line,) = queries.topic_audit(store, "t", now=NOW).tiers
    assert line.tier == "hadoop"
    assert line.cells[0] is not None
    assert line.cells[0].balance.dropped == 2


def test_drops_are_counted_by_reason(store: AuditStore) -> None:
    counts = {"attempted": 9, "dropped:queue_full": 2, "dropped:too_large": 1, "delivered": 6}
    add(store, increment("t", "producer", 0, counts), increment("t", "hadoop", 0, {"loaded": 6}))
    page = queries.topic_audit(store, "t", now=NOW)
    assert page.drops == {"queue_full": 2, "too_large": 1}
    assert page.tiers[0].cells[0] is not None
    assert page.tiers[0].cells[0].balance.losses == 3


def test_sources_show_clock_and_open_messages(store: AuditStore) -> None:
    one = increment("t", "producer", 0, {"attempted": 9, "delivered": 6}, sent_at=1_000)
    add(store, one, replace(one, id=str(uuid.uuid4()), host="ahead", sent_at=90_000), at=3_000)
    found = {s.host: s for s in queries.sources(store)}
    assert (found["host"].unsettled, found["host"].lag_ms) == (3, 2_000)
    assert found["ahead"].lag_ms == -87_000
    (tier,) = queries.tiers(store)
    assert (tier.sources, tier.unsettled, tier.last_sent) == (2, 6, 90_000)


def test_what_a_dead_producer_spilled_is_one_message(store: AuditStore) -> None:
    dead = {"attempted": 5, "unresolved": 5}
    heir = {"attempted": 4, "resent": 4, "delivered": 4}
    add(store, increment("t", "producer", 0, dead), increment("t", "producer", 0, heir))
    add(store, increment("t", "hadoop", 0, {"loaded": 4}))
    (row,) = queries.balances(store, "hadoop")
    assert (row.attempted, row.unresolved, row.surplus) == (5, 1, 0)
    assert queries.tiers(store)[1].unsettled == 0


def test_what_timed_out_may_have_arrived(store: AuditStore) -> None:
    counts = {"attempted": 5, "delivered": 3, "dropped:timed_out": 1, "dropped:queue_full": 1}
    add(store, increment("t", "producer", 0, counts), increment("t", "hadoop", 0, {"loaded": 4}))
    (row,) = queries.balances(store, "hadoop")
    assert (row.missing, row.surplus, row.failed, row.dropped) == (0, 0, 0, 1)
