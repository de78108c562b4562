"""The states of messages: they add up, nothing has a wrong name, and the names are defined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._audit import queries
from headworks._audit.balance import Balance, balance_of
from headworks._audit.increments import CountedRange, Increment
from headworks._audit.proof import duplicates_among
from headworks._audit.states import DEFINITIONS, PRODUCER_COUNTS, TIER_COUNTS
from headworks._audit.store import AuditStore
from headworks._audit.store.cuts import PUBLISHED_AFTER_MS, LogBounds, take_cut
from tests.audit.test_store import add, increment

pytestmark = pytest.mark.unit

LATER = 1_000_000
Bounds = Mapping[str, Mapping[int, LogBounds]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    opened = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    yield opened
    opened.close()


def sent(n: int, **more: int) -> Increment:
    told = {"attempted": n + sum(more.values()), "delivered": n, **more}
    return increment("t", "producer", 0, told)


def loaded(n: int, load: int, first: int, end: int) -> Increment:
    ranges = (CountedRange(0, first, end),)
    return increment("t", "hadoop", 0, {"loaded": n}, sent_at=load, commit=load, ranges=ranges)


def cut(store: AuditStore, end: int, *, start: int = 0, now: int = LATER) -> Balance:
    """Take a cut of the log of `t`, which ends at `end`. Return the balance after it."""
    assert take_cut(store, lambda _: {"t": {0: (start, end)}}, now)
    (row,) = queries.balances(store, "hadoop")
    (summed,) = queries.topic_sums(store, "hadoop")
    for state in (*DEFINITIONS, "abandoned", "in_flight"):
        assert getattr(row, state) == getattr(summed, state), state
    return row


def counts(*fates: int) -> tuple[dict[str, int], dict[str, int]]:
    """The counts of producers and the loader, from the number of messages of each true fate."""
    arrived, waiting, lost, failed, failed_arrived, dropped, unresolved, _, foreign = fates
    sent = {
        "attempted": sum(fates) - foreign,
        "delivered": arrived + waiting + lost,
        "failed": failed + failed_arrived,
        "dropped": dropped,
        "unresolved": unresolved,
        "passed": lost + arrived + unresolved,
    }
    here = arrived + failed_arrived + foreign
    return sent, {"accounted": here, "quarantined": 0, "late": 0, "gone": 0, "unresolved": 0}


@given(st.tuples(*[st.integers(0, 50)] * 9))
def test_the_states_add_up(fates: tuple[int, ...]) -> None:
    sums, seen = counts(*fates)
    assert {*sums} == {*PRODUCER_COUNTS}
    assert {*TIER_COUNTS} < {*seen}
    row = balance_of("t", 0, sums, seen, referenced=True)
    absent = row.waiting + row.lost + row.failed + row.dropped + row.unresolved
    assert row.attempted + row.surplus == row.loaded + row.quarantined + absent
    assert min(getattr(row, state) for state in DEFINITIONS) >= 0
    assert 0 <= row.abandoned <= row.unresolved
    assert row.completeness == pytest.approx(1 - absent / row.attempted if row.attempted else 1)


@given(st.tuples(*[st.integers(0, 50)] * 6))
def test_without_foreign_messages_every_fate_has_its_name(fates: tuple[int, ...]) -> None:
    arrived, waiting, lost, failed, dropped, unresolved = fates
    sums, seen = counts(arrived, waiting, lost, failed, 0, dropped, unresolved, 0, 0)
    row = balance_of("t", 0, sums, seen, referenced=True)
    found = (row.loaded, row.waiting, row.lost, row.failed, row.dropped, row.unresolved)
    assert found == fates
    assert row.losses == lost + failed + dropped + unresolved
    known = arrived + lost + failed + dropped + unresolved
    assert row.arrived_share == (pytest.approx(arrived / known) if known else None)


def test_dropped_messages_do_not_read_as_complete(store: AuditStore) -> None:
    dropped = {"dropped:queue_full": 350, "dropped:closed": 50}
    add(store, sent(10, **dropped), loaded(10, 1, 0, 10))
    row = cut(store, 10)
    assert (row.attempted, row.dropped, row.failed, row.losses) == (410, 350, 50, 400)
    assert row.completeness < 0.03
    assert not row.meets(0.5)


def test_messages_that_a_killed_producer_did_not_report_are_no_duplicates(
    store: AuditStore,
) -> None:
    add(store, sent(50), loaded(63, 1, 0, 63))
    row = cut(store, 63)
    assert (row.surplus, row.duplicated, row.losses) == (13, 0, 0)
    assert row.meets(1)


def test_quarantined_messages_of_a_foreign_client_are_a_surplus(store: AuditStore) -> None:
    add(store, sent(50), loaded(50, 1, 0, 50), increment("t", "hadoop", 0, {"quarantined": 9}))
    row = cut(store, 59)
    assert (row.surplus, row.duplicated, row.quarantined) == (9, 0, 9)


def test_messages_behind_the_loader_wait_and_those_it_passed_are_lost(store: AuditStore) -> None:
    add(store, sent(100))
    assert cut(store, 60).waiting == 100  # the log lost 40 of them
    add(store, loaded(60, 1, 0, 60), sent(30))
    row = cut(store, 90)
    assert (row.lost, row.waiting) == (40, 30)
    add(store, loaded(30, 2, 60, 90))
    row = cut(store, 90)
    assert (row.lost, row.waiting, row.losses) == (40, 0, 40)


def test_under_traffic_a_loss_has_its_name_after_two_loads(store: AuditStore) -> None:
    for load in range(1, 9):  # one window each, and three of each hundred messages are lost
        told = {"attempted": 100, "delivered": 100}
        add(store, increment("t", "producer", load, told))
        assert take_cut(store, lambda _, n=load: {"t": {0: (0, 97 * n)}}, LATER)  # type: ignore[misc]
        rows = queries.balances(store, "hadoop")
        assert [row.lost for row in rows] == [3] * (load - 1) + [0]
        assert [row.waiting for row in rows] == [0] * (load - 1) + [100]
        ranges = (CountedRange(0, 97 * (load - 1), 97 * load),)
        counts = {"loaded": 97}
        one = increment("t", "hadoop", load, counts, sent_at=load, commit=load, ranges=ranges)
        add(store, one)


def test_a_load_is_believed_when_its_counts_are_published(store: AuditStore) -> None:
    add(store, sent(10), loaded(4, LATER, 0, 10))  # the counts of another window are on their way
    assert cut(store, 10, now=LATER + PUBLISHED_AFTER_MS - 1).lost == 0
    assert cut(store, 10, now=LATER + PUBLISHED_AFTER_MS).lost == 6


def test_a_log_that_was_made_again_is_not_passed(store: AuditStore) -> None:
    add(store, sent(10), loaded(10, 1, 0, 10))
    assert cut(store, 10).missing == 0
    add(store, sent(5))
    assert cut(store, 5).waiting == 5
    add(store, loaded(5, 2, 0, 5))
    assert cut(store, 5).missing == 0


def test_what_retention_removed_before_any_load_is_lost(store: AuditStore) -> None:
    add(store, sent(10))
    assert cut(store, 10).waiting == 10
    assert cut(store, 10, start=10).lost == 10


def test_a_cut_of_counts_that_have_changed_since_is_not_taken(store: AuditStore) -> None:
    add(store, sent(10), loaded(10, 1, 0, 10))

    def ask(_: object) -> Bounds:
        add(store, sent(5))
        return {"t": {0: (0, 10)}}

    assert not take_cut(store, ask, LATER)
    (row,) = queries.balances(store, "hadoop")
    assert (row.waiting, row.lost) == (5, 0)


def test_a_topic_without_a_leader_gets_no_cut(store: AuditStore) -> None:
    add(store, sent(10), loaded(4, 1, 0, 4))
    assert take_cut(store, lambda _: {}, LATER)
    assert queries.balances(store, "hadoop")[0].waiting == 6


@pytest.mark.parametrize(
    ("loads", "proven"),
    [
        ([(10, [[0, 0, 10]]), (10, [[0, 10, 20]])], 0),
        ([(10, [[0, 0, 10]]), (10, [[0, 0, 10]])], 10),
        ([(10, [[0, 0, 10]]), (4, [[0, 8, 12]])], 2),
        ([(10, [[0, 0, 10]]), (1, [[0, 8, 12]])], 0),  # it may be one of the new offsets
        ([(12, [[0, 0, 10]])], 2),  # more rows than offsets
        ([(10, [[0, 0, 10]]), (10, [[1, 0, 10]])], 0),
    ],
)
def test_only_offsets_prove_a_duplicate(
    loads: list[tuple[int, list[list[int]]]], proven: int
) -> None:
    assert duplicates_among(loads) == proven


def test_a_window_that_is_wholly_lost_says_so(store: AuditStore) -> None:
    add(store, increment("t", "hadoop", 5, {"loaded": 1}), sent(37))
    take_cut(store, lambda _: {"t": {}}, LATER)
    found = queries.explain(store, "t", 0).states["hadoop"].balance
    assert (found.attempted, found.lost) == (37, 37)


def test_windows_without_messages_stand_on_the_time_axis(store: AuditStore) -> None:
    for window in (3, 6, 5_000):  # 30 minutes apart, and then weeks
        add(store, increment("t", "producer", window, {"attempted": 1, "delivered": 1}))
    page = queries.health(store, now=10**12)
    assert [start // 600_000 for start in page.windows] == [3, 4, 5, 6, 5_000]
    assert [cell is None for cell in page.rows[0].cells] == [False, True, True, False, False]
    assert queries.topic_audit(store, "t", now=10**12).windows == page.windows


def test_a_store_of_the_first_form_is_migrated_and_keeps_its_sums(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    old = AuditStore(url)
    add(old, sent(10), loaded(4, 1, 0, 10))
    with old.write() as connection:
        for statement in (
            "DROP INDEX audit_windows_not_passed",
            "ALTER TABLE audit_windows DROP COLUMN row_checksum",
            "ALTER TABLE audit_windows DROP COLUMN passed",
            "ALTER TABLE audit_windows DROP COLUMN marked",
            "DROP TABLE audit_log_positions",
            "DROP TABLE audit_processes",
            "DROP TABLE audit_volumes",
            "DELETE FROM audit_schema_migrations WHERE number >= 2",
            "PRAGMA user_version = 0",  # stores of that form had no checksums
        ):
            connection.exec_driver_sql(statement)
    old.close()
    store = AuditStore(url)
    assert queries.balances(store, "hadoop")[0].waiting == 6
    assert cut(store, 10).lost == 0  # the offsets of that load were not kept
    add(store, loaded(0, 2, 10, 11))
    assert cut(store, 11).lost == 6
    store.close()


def test_the_documentation_has_the_definitions(root: Path) -> None:
    text = (root / "docs" / "audit.md").read_text(encoding="utf-8")
    for state, definition in DEFINITIONS.items():
        assert f"| `{state}` | {definition} |" in text, state
