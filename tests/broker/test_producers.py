"""The memory of idempotent producers: how long it is, and that damage to its snapshot shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._broker.log import (
    DuplicateBatchError,
    OutOfOrderSequenceError,
    ProducerLimit,
    ProducerStates,
)
from headworks._kafka.records import Batch, read_header
from tests.broker.build import batch

pytestmark = pytest.mark.unit


def numbered(first: int) -> Batch:
    """A batch of two records of producer 7."""
    return read_header(batch(2, producer=(7, 0, first)))


def known(count: int) -> ProducerStates:
    """Producer 7 after so many batches of two."""
    states = ProducerStates()
    for number in range(count):
        states.check(numbered(2 * number))
        states.update(numbered(2 * number), 100 + 2 * number)
    return states


def test_the_last_five_batches_are_known_again_and_no_others() -> None:
    states = known(8)
    for number in range(3, 8):
        with pytest.raises(DuplicateBatchError) as caught:
            states.check(numbered(2 * number))
        assert caught.value.base_offset == 100 + 2 * number
    for number in (0, 2):
        with pytest.raises(OutOfOrderSequenceError):
            states.check(numbered(2 * number))
    states.check(numbered(16))


def test_a_snapshot_holds_all_of_it() -> None:
    loaded = ProducerStates.load(known(8).dump())
    assert loaded is not None
    before, after = known(8).get(7), loaded.get(7)
    assert before is not None
    assert after is not None
    assert after[:2] == before[:2]


@given(st.data())
def test_a_snapshot_cut_or_overwritten_anywhere_is_refused(data: st.DataObject) -> None:
    whole = known(6).dump()
    position = data.draw(st.integers(0, len(whole) - 1))
    noise = data.draw(st.binary(max_size=8))
    damaged = whole[:position] + noise
    if data.draw(st.booleans()):
        damaged += whole[position + len(noise) :]
    if damaged != whole:
        assert ProducerStates.load(damaged) is None


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def write(states: ProducerStates, producer: int) -> None:
    states.update(read_header(batch(1, producer=(producer, 0, 0))), 0)


def ids(states: ProducerStates) -> list[int]:
    return [producer for _, _, producer in states.by_last_write()]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=150), st.integers(1, 15))
def test_who_was_silent_longest_is_forgotten_first_in_whatever_partition(
    writes: list[tuple[int, int]], limit: int
) -> None:
    clock = Clock()
    producer_limit = ProducerLimit(limit, clock)
    partitions = [ProducerStates() for _ in range(4)]
    for states in partitions:
        states.join(producer_limit)
    order: list[tuple[int, int]] = []  # the longest silent first
    for at, producer in writes:
        clock.now += 1
        write(partitions[at], producer)
        order = [one for one in order if one != (at, producer)] + [(at, producer)]
        order = order[max(0, len(order) - limit) :]
        assert producer_limit.count == sum(len(states) for states in partitions) == len(order)
        for number, states in enumerate(partitions):
            assert ids(states) == [producer for at, producer in order if at == number]


def test_many_are_forgotten_at_once_so_that_it_is_seldom() -> None:
    clock = Clock()
    producer_limit = ProducerLimit(1600, clock)
    one, two = ProducerStates(), ProducerStates()
    one.join(producer_limit)
    two.join(producer_limit)
    write(two, 7)
    for producer in range(1600):
        clock.now += 1
        write(one, producer)
    assert producer_limit.count == len(one) == 1500
    assert (ids(one)[0], two.get(7)) == (100, None)


def test_who_is_silent_for_too_long_is_forgotten() -> None:
    clock = Clock()
    producer_limit = ProducerLimit(clock=clock)
    states, gone = ProducerStates(), ProducerStates()
    states.join(producer_limit)
    gone.join(producer_limit)
    for producer in (1, 2, 3):
        clock.now += 10
        write(states, producer)
    write(gone, 9)
    gone.leave()
    assert producer_limit.count == 3
    producer_limit.expire(10)
    assert ids(states) == [2, 3]
    clock.now += 15
    write(states, 2)
    producer_limit.expire(10)
    assert (ids(states), producer_limit.count) == ([2], 1)


def test_an_append_that_is_undone_is_not_counted() -> None:
    clock = Clock()
    producer_limit = ProducerLimit(2, clock)
    states = ProducerStates()
    states.join(producer_limit)
    write(states, 1)
    before = states.get(1)
    for producer in (2, 3):
        clock.now += 1
        write(states, producer)
    assert ids(states) == [2, 3]
    states.restore(3, None)
    assert (ids(states), producer_limit.count) == ([2], 1)
    states.restore(1, before)
    states.restore(1, before)
    assert producer_limit.count == len(states) == 2
