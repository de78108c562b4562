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
    batch: int = 0,
) -> Iterator[tuple[int, GroupState]]:
    """Run a group for a while, second by second. Yield (second, state) for every sample.

    With a `batch`, the group handles so many messages of a partition before it takes the next one.
    """
    turn, of_turn = 0, 0.0
    ends = [backlog] * partitions
    handled, committed = [0.0] * partitions, [0] * partitions
    kept: list[GroupSample] = []
    for second in range(READINGS * STEP_SECONDS):
        for one in range(partitions):
            ends[one] += int(chance.expovariate(1) * arrive(second) / partitions + chance.random())
        left = handle(second)
        for one in [] if batch else chance.sample(range(partitions), partitions):
            step = min(left, ends[one] - handled[one])
            handled[one] += step
            left -= step
        while batch and left > 0 and sum(ends) - sum(handled) >= 1:
            step = min(left, batch - of_turn, ends[turn] - handled[turn])
            handled[turn], left, of_turn = handled[turn] + step, left - step, of_turn + step
            if of_turn >= batch or ends[turn] - handled[turn] < 1:
                turn, of_turn = (turn + 1) % partitions, 0.0
        if second % commit_seconds == 0:
            committed = [int(n) for n in handled]
        if second % STEP_SECONDS == 0:
            found = {("t", p): (committed[p], ends[p] - committed[p]) for p in range(partitions)}
            kept = [*kept[-30:], GroupSample(second, True, found)]
            yield second, group_state(kept)[0]


def test_a_group_that_takes_one_partition_after_another_is_not_stalled() -> None:
    behind = list(readings(Random(7), lambda _: 20, lambda _: 14.0, partitions=4, batch=1_500))
    late = [state for at, state in behind if at > 120]
    assert late.count(GroupState.BEHIND) >= 0.95 * len(late)
    assert GroupState.STALLED not in late
    catching_up = readings(
        Random(7), lambda _: 20, lambda _: 30.0, partitions=4, backlog=5_000, batch=2_000
    )
    wrong = [at for at, state in catching_up if state is not GroupState.OK]
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize("step", [5, 15, 19, 23])
def test_samples_that_are_far_apart_still_show_a_group_that_falls_behind(step: int) -> None:
    seen = [GroupSample(n * step, True, {PLACE: (10 + n, 5 + n)}) for n in range(60)]
    late = [group_state(seen[:n])[0] for n in range(2, 60) if (n - 1) * step >= 120]
    assert {*late} == {GroupState.BEHIND}


def test_a_broker_that_was_away_for_a_while_makes_no_group_well() -> None:
    seen = [GroupSample(n * 5, True, {PLACE: (10 + n, 5 + n)}) for n in range(60)]
    away = [sample for sample in seen if not 150 < sample.at < 178]
    late = [group_state(away[:n])[0] for n in range(26, len(away) + 1)]
    assert {*late} == {GroupState.BEHIND}
    # After a long time nothing is known of the last two minutes.
    away = [sample for sample in seen if not 150 < sample.at < 250]
    assert group_state(away[: away.index(seen[50]) + 1])[0] is GroupState.OK


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
