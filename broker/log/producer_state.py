"""Idempotent producers of one partition: who wrote what last, to tell repeats and gaps.

Rules (as in the protocol): a producer numbers its records per partition; the numbers wrap at 2^31.
The last five batches of each producer are remembered; a repeat of one of them is answered with its
old offset, a gap is refused, an older epoch is refused, a newer epoch starts at 0. A producer that
is not known (new, or forgotten) may start with any number.

States are immutable, so undoing an append that failed is putting the old state back. They are
rebuilt from the log at start; `dump` and `load` keep that short with a snapshot per segment.

The number of producers is bounded, over all partitions of a broker: a `Roster` counts them, and
those that have been silent longest are forgotten, whatever partition they wrote to. A batch costs
one look at the clock for that; nothing else is done until there are too many.
"""

from __future__ import annotations

import heapq
import struct
import time
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from operator import itemgetter
from typing import NamedTuple

from crc32c import crc32c

from headworks._kafka.records.batch import Batch
from headworks.errors import RefusedError

__all__ = [
    "MAX_PRODUCERS",
    "DuplicateBatchError",
    "InvalidProducerEpochError",
    "OutOfOrderSequenceError",
    "ProducerLimit",
    "ProducerState",
    "ProducerStates",
]

MAX_PRODUCERS = 200_000
_BATCHES_PER_PRODUCER = 5
_SEQUENCE_MODULUS = 1 << 31
_EVICTION_FRACTION = 16  # of so many producers one more is forgotten, so that it is seldom done
_MAGIC = b"HWP2"
_CRC = struct.Struct(">I")
_HEAD = struct.Struct(">qhB")
_BATCH = struct.Struct(">iiq")


class DuplicateBatchError(RefusedError):
    """A batch that is in the log already, at `base_offset`."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"already in the log at offset {base_offset}")
        self.base_offset = base_offset


class OutOfOrderSequenceError(RefusedError):
    """A batch whose first number does not follow the last one."""


class InvalidProducerEpochError(RefusedError):
    """A batch of a producer's earlier life."""


class BatchMetadata(NamedTuple):
    """A batch that was appended: its first and last number and its offset."""

    first: int
    last: int
    base_offset: int


class ProducerState(NamedTuple):
    """What is known of a producer: its epoch, its last batches (oldest first), when it wrote."""

    epoch: int
    batches: tuple[BatchMetadata, ...]
    last_write: float


class ProducerLimit:
    """How many producers the partitions remember together; each partition in one roster."""

    def __init__(
        self, limit: int = MAX_PRODUCERS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self.count = 0
        self._limit = limit
        self._partitions: set[ProducerStates] = set()

    def add(self, states: ProducerStates) -> None:
        """Count a partition's producers, from now on."""
        self._partitions.add(states)
        self.grow(len(states))

    def remove(self, states: ProducerStates) -> None:
        """Count them no more."""
        if states in self._partitions:
            self._partitions.remove(states)
            self.count -= len(states)

    def grow(self, count: int) -> None:
        """So many producers came; those that have been silent longest go, if they are too many."""
        self.count += count
        if self.count <= self._limit:
            return
        spare = self.count - self._limit + self._limit // _EVICTION_FRACTION
        silent = heapq.merge(*(one.by_last_write() for one in self._partitions), key=itemgetter(0))
        for _, states, producer_id in list(islice(silent, spare)):
            states.forget(producer_id)

    def expire(self, seconds: float) -> int:
        """Forget those that have been silent for so long; how many they were."""
        before, since = self.count, self.clock() - seconds
        for states in self._partitions:
            silent = states.by_last_write()
            for _, _, producer_id in list(takewhile(lambda one: one[0] < since, silent)):
                states.forget(producer_id)
        return before - self.count


class ProducerStates:
    """All producers of a partition; in a roster of its own until it joins that of its broker."""

    def __init__(self, limit: int = MAX_PRODUCERS) -> None:
        self._states: dict[int, ProducerState] = {}
        self._producer_limit = ProducerLimit(limit)
        self._producer_limit.add(self)

    def __len__(self) -> int:
        return len(self._states)

    def join(self, producer_limit: ProducerLimit) -> None:
        """Be counted in another roster."""
        self._producer_limit.remove(self)
        self._producer_limit = producer_limit
        producer_limit.add(self)

    def leave(self) -> None:
        """Be counted no more: the partition is not served any longer."""
        self._producer_limit.remove(self)

    def by_last_write(self) -> Iterator[tuple[float, ProducerStates, int]]:
        """Every producer with when it wrote last, the longest silent first."""
        for producer_id, state in self._states.items():
            yield state.last_write, self, producer_id

    def forget(self, producer_id: int) -> None:
        """Forget one, if it is known."""
        if self._states.pop(producer_id, None) is not None:
            self._producer_limit.count -= 1

    def get(self, producer_id: int) -> ProducerState | None:
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
            raise InvalidProducerEpochError(
                f"epoch {batch.producer_epoch} of producer {batch.producer_id} ended:"
                f" it is at {state.epoch}"
            )
        if batch.producer_epoch > state.epoch:
            expected = 0
        else:
            for past in state.batches:
                if past.first == first and past.last == last:
                    raise DuplicateBatchError(past.base_offset)
            expected = (state.batches[-1].last + 1) % _SEQUENCE_MODULUS
        if first != expected:
            raise OutOfOrderSequenceError(
                f"producer {batch.producer_id} sent number {first} where {expected} follows"
            )

    def record(self, batch: Batch, base_offset: int) -> ProducerState | None:
        """Note an append; returns the state before, for `restore`."""
        before = self._states.pop(batch.producer_id, None)  # re-inserted last: order = activity
        past = BatchMetadata(batch.base_sequence, last_sequence(batch), base_offset)
        now = self._producer_limit.clock()
        if before is None or before.epoch != batch.producer_epoch:
            state = ProducerState(batch.producer_epoch, (past,), now)
        else:
            recent = before.batches[1 - _BATCHES_PER_PRODUCER :]
            state = ProducerState(before.epoch, (*recent, past), now)
        self._states[batch.producer_id] = state
        if before is None:
            self._producer_limit.grow(1)
        return before

    def restore(self, producer_id: int, before: ProducerState | None) -> None:
        """Undo a `record`."""
        if before is None:
            self.forget(producer_id)
            return
        known = producer_id in self._states
        self._states[producer_id] = before
        if not known:  # forgotten since
            self._producer_limit.grow(1)

    def dump(self) -> bytes:
        """A snapshot."""
        out = bytearray()
        for producer_id, state in self._states.items():
            out += _HEAD.pack(producer_id, state.epoch, len(state.batches))
            for past in state.batches:
                out += _BATCH.pack(*past)
        return _seal(out) + out

    @classmethod
    def load(cls, data: bytes) -> ProducerStates | None:
        """The states of a snapshot, as if they had been used now; None if it is damaged."""
        states = cls()
        now = states._producer_limit.clock()
        position = len(_MAGIC) + _CRC.size
        if data[:position] != _seal(data[position:]):
            return None
        try:
            while position < len(data):
                producer_id, epoch, count = _HEAD.unpack_from(data, position)
                position += _HEAD.size
                batches = []
                for _ in range(count):
                    batches.append(BatchMetadata(*_BATCH.unpack_from(data, position)))
                    position += _BATCH.size
                states._states[producer_id] = ProducerState(epoch, tuple(batches), now)
        except struct.error:
            return None
        states._producer_limit.grow(len(states))
        return states


def _seal(body: bytes | bytearray) -> bytes:
    return _MAGIC + _CRC.pack(crc32c(body))


def last_sequence(batch: Batch) -> int:
    """The number of a batch's last record."""
    return (batch.base_sequence + batch.last_offset_delta) % _SEQUENCE_MODULUS
