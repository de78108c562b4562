"""The verdict on a group, by what it did."""

from __future__ import annotations

import pytest

from headworks._console.sources.group_state import Sample, State, judge

PLACE = ("orders", 0)


def samples(*positions: tuple[int, int], active: bool = True) -> list[Sample]:
    return [Sample(n, active, {PLACE: position}) for n, position in enumerate(positions)]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (samples((10, 0), (10, 0), (10, 0)), State.OK),
        (samples((10, 5), (12, 3), (15, 0)), State.OK),
        (samples((10, 5), (12, 6), (15, 5)), State.OK),
        (samples((10, 5), (11, 6), (12, 7)), State.BEHIND),
        (samples((10, 5), (10, 6), (10, 7)), State.STALLED),
        (samples((10, 5), (10, 5)), State.OK),
        (samples((10, 5), active=False), State.STOPPED),
        (samples((10, 0), active=False), State.OK),
        (samples((10, 5), (8, 7), (9, 6)), State.REWOUND),
    ],
)
def test_a_partition(seen: list[Sample], expected: State) -> None:
    state, because = judge(seen)
    assert state is expected
    assert because


def test_a_group_is_as_well_as_its_worst_partition() -> None:
    still = [
        Sample(n, True, {PLACE: (10 + n, 0), ("orders", 1): (5, 9)})  # one moves, one does not
        for n in range(5)
    ]
    state, because = judge(still)
    assert state is State.STALLED
    assert "orders 1" in because


def test_no_offsets_are_no_trouble() -> None:
    assert judge([Sample(0, True, {})])[0] is State.OK
