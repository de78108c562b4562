"""Idempotent producers of one partition: who wrote what last, to tell repeats and gaps.

Rules (as in the protocol): a producer numbers its records per partition; the numbers wrap at 2^31.
The last five batches of each producer are remembered; a repeat of one of them is answered with its
old offset, a gap is refused, an older epoch is refused, a newer epoch starts at 0. A producer that
is not known (new, or forgotten) may start with any number.

States are immutable, so undoing an append that failed is putting the old state back. They are
rebuilt from the log at start; `dump` and `load` keep that short with a snapshot per segment.
The number of producers is bounded: the one that has been silent longest is forgotten.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from broker.records.batch import Batch
from headworks.errors import RefusedError

__all__ = ["DuplicateError", "OutOfSequenceError", "ProducerStates", "StaleEpochError", "State"]

_REMEMBERED = 5
_WRAP = 1 << 31
_LIMIT = 100_000
_MAGIC = b"HWP2"
_CRC = struct.Struct(">I")
_HEAD = struct.Struct(">qhB")
_PAST = struct.Struct(">iiq")


class DuplicateError(RefusedError):
    """A batch that is in the log already, at `base_offset`."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"already in the log at offset {base_offset}")
        self.base_offset = base_offset


class OutOfSequenceError(RefusedError):
    """A batch whose first number does not follow the last one."""


class StaleEpochError(RefusedError):
    """A batch of a producer's earlier life."""


class Past(NamedTuple):
    """A batch that was appended: its first and last number and its offset."""

    first: int
    last: int
    base_offset: int


class State(NamedTuple):
    """What is known of a producer: its epoch and its last batches, oldest first."""

    epoch: int
    batches: tuple[Past, ...]


class ProducerStates:
    """All producers of a partition."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._states: dict[int, State] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> State | None:
        """What is known of a producer."""
        return self._states.get(producer_id)

    def last_batches(self) -> frozenset[int]:
        """The base offset of every producer's last batch."""
        return frozenset(state.batches[-1].base_offset for state in self._states.values())

    def check(self, batch: Batch) -> None:
        """DuplicateError, OutOfSequenceError or StaleEpochError if it must not be appended."""
        state = self._states.get(batch.producer_id)
        if state is None:
            return
        first, last = batch.base_sequence, last_sequence(batch)
        if batch.producer_epoch < state.epoch:
            raise StaleEpochError(
                f"epoch {batch.producer_epoch} of producer {batch.producer_id} ended:"
                f" it is at {state.epoch}"
            )
        if batch.producer_epoch > state.epoch:
            expected = 0
        else:
            for past in state.batches:
                if past.first == first and past.last == last:
                    raise DuplicateError(past.base_offset)
            expected = (state.batches[-1].last + 1) % _WRAP
        if first != expected:
            raise OutOfSequenceError(
                f"producer {batch.producer_id} sent number {first} where {expected} follows"
            )

    def record(self, batch: Batch, base_offset: int) -> State | None:
        """Note an append; returns the state before, for `restore`."""
        before = self._states.pop(batch.producer_id, None)  # re-inserted last: order = activity
        past = Past(batch.base_sequence, last_sequence(batch), base_offset)
        if before is None or before.epoch != batch.producer_epoch:
            state = State(batch.producer_epoch, (past,))
        else:
            state = State(before.epoch, (*before.batches[1 - _REMEMBERED :], past))
        self._states[batch.producer_id] = state
        if len(self._states) > self._limit:
            del self._states[next(iter(self._states))]
        return before

    def restore(self, producer_id: int, before: State | None) -> None:
        """Undo a `record`."""
        if before is None:
            self._states.pop(producer_id, None)
        else:
            self._states[producer_id] = before

    def dump(self) -> bytes:
        """A snapshot."""
        out = bytearray()
        for producer_id, state in self._states.items():
            out += _HEAD.pack(producer_id, state.epoch, len(state.batches))
            for past in state.batches:
                out += _PAST.pack(*past)
        return _seal(out) + out

    @classmethod
    def load(cls, data: bytes, limit: int = _LIMIT) -> ProducerStates | None:
        """The states of a snapshot, or None if it is damaged."""
        states = cls(limit)
        position = len(_MAGIC) + _CRC.size
        if data[:position] != _seal(data[position:]):
            return None
        try:
            while position < len(data):
                producer_id, epoch, count = _HEAD.unpack_from(data, position)
                position += _HEAD.size
                batches = []
                for _ in range(count):
                    batches.append(Past(*_PAST.unpack_from(data, position)))
                    position += _PAST.size
                states._states[producer_id] = State(epoch, tuple(batches))
        except struct.error:
            return None
        return states


def _seal(body: bytes | bytearray) -> bytes:
    return _MAGIC + _CRC.pack(crc32c(body))


def last_sequence(batch: Batch) -> int:
    """The number of a batch's last record."""
    return (batch.base_sequence + batch.last_offset_delta) % _WRAP
