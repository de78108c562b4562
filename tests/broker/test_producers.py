"""The memory of idempotent producers: how long it is, and that damage to its snapshot shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log import DuplicateError, OutOfSequenceError, ProducerStates
from broker.records import Batch, read_header
from tests.broker.build import batch


def numbered(first: int) -> Batch:
    """A batch of two records of producer 7."""
    return read_header(batch(2, producer=(7, 0, first)))


def known(count: int) -> ProducerStates:
    """Producer 7 after so many batches of two."""
    states = ProducerStates()
    for number in range(count):
        states.check(numbered(2 * number))
        states.record(numbered(2 * number), 100 + 2 * number)
    return states


def test_the_last_five_batches_are_known_again_and_no_others() -> None:
    states = known(8)
    for number in range(3, 8):
        with pytest.raises(DuplicateError) as caught:
            states.check(numbered(2 * number))
        assert caught.value.base_offset == 100 + 2 * number
    for number in (0, 2):
        with pytest.raises(OutOfSequenceError):
            states.check(numbered(2 * number))
    states.check(numbered(16))


def test_a_snapshot_holds_all_of_it() -> None:
    loaded = ProducerStates.load(known(8).dump())
    assert loaded is not None
    assert loaded.get(7) == known(8).get(7)


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
