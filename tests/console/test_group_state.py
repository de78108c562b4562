"""The verdict on a group, by what it did."""

from __future__ import annotations

import pytest

from headworks._console.sources.group_state import GroupSample, GroupState, group_state

pytestmark = pytest.mark.unit

PLACE = ("orders", 0)


def samples(*positions: tuple[int, int], active: bool = True) -> list[GroupSample]:
    return [GroupSample(n, active, {PLACE: position}) for n, position in enumerate(positions)]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (samples((10, 0), (10, 0), (10, 0)), GroupState.OK),
        (samples((10, 5), (12, 3), (15, 0)), GroupState.OK),
        (samples((10, 5), (12, 6), (15, 5)), GroupState.OK),
        (samples((10, 5), (11, 6), (12, 7)), GroupState.BEHIND),
        (samples((10, 5), (10, 6), (10, 7)), GroupState.STALLED),
        (samples((10, 5), (10, 5)), GroupState.OK),
        (samples((10, 5), active=False), GroupState.STOPPED),
        (samples((10, 0), active=False), GroupState.OK),
        (samples((10, 5), (8, 7), (9, 6)), GroupState.REWOUND),
    ],
)
def test_a_partition(seen: list[GroupSample], expected: GroupState) -> None:
    state, because = group_state(seen)
    assert state is expected
    assert because


def test_a_group_is_as_well_as_its_worst_partition() -> None:
    still = [
        GroupSample(n, True, {PLACE: (10 + n, 0), ("orders", 1): (5, 9)})  # one moves, one does not
        for n in range(5)
    ]
    state, because = group_state(still)
    assert state is GroupState.STALLED
    assert "orders 1" in because


def test_no_offsets_are_no_trouble() -> None:
    assert group_state([GroupSample(0, True, {})])[0] is GroupState.OK
