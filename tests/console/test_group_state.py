"""The verdict on a group, by what it did in the last two minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from headworks._console.sources.group_state import GroupSample, GroupState, group_state

pytestmark = pytest.mark.unit

PLACE = ("orders", 0)
STEP_SECONDS = 5
READINGS = 200


def samples(*positions: tuple[int, int], active: bool = True, step: int = 40) -> list[GroupSample]:
    return [
        GroupSample(n * step, active, {PLACE: position}) for n, position in enumerate(positions)
    ]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (samples((10, 0), (10, 0), (10, 0)), GroupState.OK),
        (samples((10, 5), (12, 3), (15, 0)), GroupState.OK),
        (samples((10, 5), (12, 6), (15, 5), (17, 4)), GroupState.OK),
        (samples((10, 5), (11, 6), (12, 7), (13, 8)), GroupState.BEHIND),
        (samples((10, 5), (11, 6), (12, 7), (13, 8), step=5), GroupState.OK),
        (samples((10, 5), (10, 6), (10, 7)), GroupState.STALLED),
        (samples((10, 5), (10, 6), (10, 7), step=5), GroupState.OK),  # it commits every 20 seconds
        (samples((10, 5), (10, 5), step=5), GroupState.OK),
        (samples((10, 5), active=False), GroupState.STOPPED),
        (samples((10, 0), active=False), GroupState.OK),
        (samples((10, 5), (8, 7), (9, 6)), GroupState.REWOUND),
    ],
)
def test_a_partition(seen: list[GroupSample], expected: GroupState) -> None:
    state, because = group_state(seen)
    assert state is expected
    assert because


def test_a_partition_that_stands_still_for_two_minutes_stalls_its_group() -> None:
    still = [
        GroupSample(n * 5, True, {PLACE: (10 + n, 3), ("orders", 1): (5, 9)}) for n in range(25)
    ]
    assert group_state(still[:20])[0] is GroupState.OK
    state, because = group_state(still)
    assert state is GroupState.STALLED
    assert "orders 1" in because


def test_no_offsets_are_no_trouble() -> None:
    assert group_state([GroupSample(0, True, {})])[0] is GroupState.OK


def readings(
    chance: Random,
    arrive: Callable[[int], float],
    handle: Callable[[int], float],
    *,
    commit_seconds: int = 5,
    partitions: int = 3,
    backlog: int = 0,
) -> Iterator[tuple[int, GroupState]]:
    """Run a group for a while, second by second. Yield (second, state) for every sample."""
    ends = [backlog] * partitions
    handled, committed = [0.0] * partitions, [0] * partitions
    kept: list[GroupSample] = []
    for second in range(READINGS * STEP_SECONDS):
        for one in range(partitions):
            ends[one] += int(chance.expovariate(1) * arrive(second) / partitions + chance.random())
        left = handle(second)
        for one in chance.sample(range(partitions), partitions):
            step = min(left, ends[one] - handled[one])
            handled[one] += step
            left -= step
        if second % commit_seconds == 0:
            committed = [int(n) for n in handled]
        if second % STEP_SECONDS == 0:
            found = {("t", p): (committed[p], ends[p] - committed[p]) for p in range(partitions)}
            kept = [*kept[-30:], GroupSample(second, True, found)]
            yield second, group_state(kept)[0]


HEALTHY: dict[str, tuple[Callable[[int], float], int, int]] = {
    "steady": (lambda _: 300, 5, 0),
    "slow commits": (lambda _: 300, 30, 0),
    "few messages": (lambda _: 0.2, 5, 0),
    "bursts": (lambda second: 2000 if second % 60 < 5 else 50, 5, 0),
    "a growing day": (lambda second: 100 + second, 5, 0),
    "catching up": (lambda _: 300, 5, 200_000),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_group_is_called_well(name: str) -> None:
    arrive, commit, backlog = HEALTHY[name]
    seen = list(
        readings(Random(7), arrive, lambda _: 1500.0, commit_seconds=commit, backlog=backlog)
    )
    wrong = [at for at, state in seen if state is not GroupState.OK]
    assert len(seen) == READINGS
    assert len(wrong) <= 1, wrong


def test_a_group_that_handles_three_of_four_is_found_within_two_minutes_and_stays_so() -> None:
    seen = list(readings(Random(7), lambda _: 4, lambda _: 3.0, backlog=1_000))
    late = [state for at, state in seen if at > 120]
    assert late[0] is GroupState.BEHIND
    assert late.count(GroupState.BEHIND) >= 0.95 * len(late)
