"""The plan: every offset in exactly one bin, bins alike, gaps never silent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadoop_loader._fetch.ranges import (
    MIN_SPLIT_OFFSETS,
    FetchRange,
    OffsetGap,
    OffsetGapError,
    Watermarks,
    assign_to_tasks,
    consumer_assignments,
    new_ranges,
)

pytestmark = pytest.mark.unit

RANGES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 4),
        st.integers(0, 1000),
        st.integers(1, 50_000),
    ),
    max_size=12,
    unique_by=lambda r: r[:2],
).map(lambda found: [FetchRange(t, p, start, start + size) for t, p, start, size in found])


@given(RANGES, st.integers(1, 8))
def test_every_offset_is_in_exactly_one_bin(ranges: list[FetchRange], bins: int) -> None:
    packed = assign_to_tasks(ranges, bins)
    assert len(packed) <= bins
    assert all(packed)
    pieces = sorted(r for found in packed for r in found)
    for r in ranges:
        at = r.start
        for piece in pieces:
            if (piece.topic, piece.partition) == (r.topic, r.partition):
                assert piece.start == at
                at = piece.end
        assert at == r.end
    assert sum(p.size for p in pieces) == sum(r.size for r in ranges)


def test_one_large_partition_is_split_over_all_bins() -> None:
    packed = assign_to_tasks([FetchRange("big", 0, 0, 1_000_000), FetchRange("small", 0, 0, 10)], 4)
    loads = [sum(r.size for r in found) for found in packed]
    assert len(loads) == 4
    assert max(loads) < 1.3 * min(loads)


def test_small_ranges_are_not_split() -> None:
    assert assign_to_tasks([FetchRange("a", 0, 0, MIN_SPLIT_OFFSETS)], 4) == [
        (FetchRange("a", 0, 0, MIN_SPLIT_OFFSETS),)
    ]


def test_measured_bytes_decide() -> None:
    ranges = [
        FetchRange("fat", 0, 0, 1000),
        FetchRange("thin", 0, 0, 1000),
        FetchRange("thin", 1, 0, 1000),
    ]
    packed = assign_to_tasks(ranges, 2, {"fat": 10_000.0, "thin": 10.0})
    assert packed[0] == (FetchRange("fat", 0, 0, 1000),)


def test_a_small_topic_is_opened_by_one_task_only() -> None:
    ranges = [FetchRange(f"t{n}", p, 0, 700) for n in range(40) for p in range(4)]
    packed = assign_to_tasks(ranges, 2)
    assert [len({r.topic for r in found}) for found in packed] == [20, 20]
    assert [len(found) for found in packed] == [80, 80]
    with_large = assign_to_tasks(
        [*ranges, *(FetchRange("large", p, 0, 100_000) for p in range(4))], 2
    )
    assert all(any(r.topic == "large" for r in found) for found in with_large)
    assert not {r.topic for r in with_large[0]} & {r.topic for r in with_large[1]} - {"large"}


@given(RANGES)
def test_rounds_never_hold_a_partition_twice(ranges: list[FetchRange]) -> None:
    split = [half for r in ranges for half in (FetchRange(r.topic, r.partition, 0, 1), r)]
    groups = consumer_assignments(split)
    assert sorted(r for group in groups for r in group) == sorted(split)
    for group in groups:
        keys = [(r.topic, r.partition) for r in group]
        assert len(set(keys)) == len(keys)


def test_a_range_starts_where_the_last_commit_ended() -> None:
    marks = {0: Watermarks(0, 10), 1: Watermarks(5, 9), 2: Watermarks(0, 0), 3: Watermarks(0, 4)}
    ranges, gaps = new_ranges("t", {0: 4, 3: 4}, marks, skip_lost=False)
    assert ranges == [FetchRange("t", 0, 4, 10), FetchRange("t", 1, 5, 9)]
    assert gaps == []


def test_messages_lost_to_retention_are_refused_or_told() -> None:
    marks = {0: Watermarks(7, 10)}
    with pytest.raises(OffsetGapError, match=r"t\[0\] offsets 3 to 6 were dropped"):
        new_ranges("t", {0: 3}, marks, skip_lost=False)
    ranges, gaps = new_ranges("t", {0: 3}, marks, skip_lost=True)
    assert (ranges, gaps) == ([FetchRange("t", 0, 7, 10)], [OffsetGap(0, 3, 7)])


def test_a_log_that_became_shorter_is_refused() -> None:
    with pytest.raises(OffsetGapError, match="ends at offset 2, but it was loaded up to 3"):
        new_ranges("t", {0: 3}, {0: Watermarks(0, 2)}, skip_lost=True)
