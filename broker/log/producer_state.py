"""The idempotent producers of one partition: their last batches, to detect repeats and gaps.

Rules, as in the protocol:

- A producer numbers its records per partition. Sequence numbers wrap at 2^31.
- The state of a producer has its last five batches. A repeat of one of them is answered with its
  old offset.
- A gap in the sequence is rejected, and so is an older epoch. A newer epoch starts at 0.
- An unknown producer, which is new or was expired, may start with any number.

A state is immutable: to undo a failed append, the old state is put back. States are rebuilt from
the log at start. A snapshot per segment, by `dump` and `load`, keeps that short.

A `ProducerLimit` bounds the producers of all partitions of a broker. It removes those that have not
written for longest, whatever partition they wrote to. A batch costs one read of the clock for that.
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
_EVICTION_DIVISOR = 16  # of the limit, that is removed at once, so that this is rare
_MAGIC = b"HWP2"
_CRC = struct.Struct(">I")
_HEAD = struct.Struct(">qhB")
_BATCH = struct.Struct(">iiq")


class DuplicateBatchError(RefusedError):
    """The log has this batch already, at `base_offset`."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"already in the log at offset {base_offset}")
        self.base_offset = base_offset


class OutOfOrderSequenceError(RefusedError):
    """The first sequence number of a batch does not follow the last one."""


class InvalidProducerEpochError(RefusedError):
    """A batch has an older epoch than its producer."""


class BatchMetadata(NamedTuple):
    """A batch that was appended."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class ProducerState(NamedTuple):
    """The state of one producer in one partition."""

    epoch: int
    batches: tuple[BatchMetadata, ...]  # the last five, oldest first
    last_write: float  # when, by the clock of the limit, in seconds


class ProducerLimit:
    """Bounds the producers of all its partitions together."""

    def __init__(
        self, limit: int = MAX_PRODUCERS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock  # seconds, monotonic
        self.count = 0  # of producers in all partitions
        self._limit = limit
        self._partitions: set[ProducerStates] = set()  # each is in one limit only

    def add(self, states: ProducerStates) -> None:
        """Count the producers of a partition from now on."""
        self._partitions.add(states)
        self.grow(len(states))

    def remove(self, states: ProducerStates) -> None:
        """Stop counting the producers of a partition."""
        if states in self._partitions:
            self._partitions.remove(states)
            self.count -= len(states)

    def grow(self, count: int) -> None:
        """Count new producers. Above the limit, remove those that have not written for longest."""
        self.count += count
        if self.count <= self._limit:
            return
        spare = self.count - self._limit + self._limit // _EVICTION_DIVISOR
        silent = heapq.merge(*(one.by_last_write() for one in self._partitions), key=itemgetter(0))
        for _, states, producer_id in list(islice(silent, spare)):
            states.remove_producer(producer_id)

    def expire(self, seconds: float) -> int:
        """Remove the producers that have not written for `seconds`, and return their number."""
        before, since = self.count, self.clock() - seconds
        for states in self._partitions:
            silent = states.by_last_write()
            for _, _, producer_id in list(takewhile(lambda one: one[0] < since, silent)):
                states.remove_producer(producer_id)
        return before - self.count


class ProducerStates:
    """The states of all producers of a partition."""

    def __init__(self, limit: int = MAX_PRODUCERS) -> None:
        self._states: dict[int, ProducerState] = {}  # by producer id, the last writer last
        self._producer_limit = ProducerLimit(limit)  # its own until `join`
        self._producer_limit.add(self)

    def __len__(self) -> int:
        return len(self._states)

    def join(self, producer_limit: ProducerLimit) -> None:
        """Move to the limit of the broker."""
        self._producer_limit.remove(self)
        self._producer_limit = producer_limit
        producer_limit.add(self)

    def leave(self) -> None:
        """Leave the limit, because the partition is no longer served."""
        self._producer_limit.remove(self)

    def by_last_write(self) -> Iterator[tuple[float, ProducerStates, int]]:
        """Yield (last write, these states, producer id), the oldest write first."""
        for producer_id, state in self._states.items():
            yield state.last_write, self, producer_id

    def remove_producer(self, producer_id: int) -> None:
        """Remove a producer, if it is known."""
        if self._states.pop(producer_id, None) is not None:
            self._producer_limit.count -= 1

    def get(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer, None if it is unknown."""
        return self._states.get(producer_id)

    def last_batches(self) -> frozenset[int]:
        """Return the base offset of the last batch of each producer."""
        return frozenset(state.batches[-1].base_offset for state in self._states.values())

    def check(self, batch: Batch) -> None:
        """Raise the error for which a batch must not be appended, if there is one."""
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
            for written in state.batches:
                if written.first_sequence == first and written.last_sequence == last:
                    raise DuplicateBatchError(written.base_offset)
            expected = (state.batches[-1].last_sequence + 1) % _SEQUENCE_MODULUS
        if first != expected:
            raise OutOfOrderSequenceError(
                f"producer {batch.producer_id} sent sequence number {first}, not {expected}"
            )

    def update(self, batch: Batch, base_offset: int) -> ProducerState | None:
        """Note an append, and return the state before it, for `restore`."""
        before = self._states.pop(
            batch.producer_id, None
        )  # inserted again as the last: the order is that of the writes
        written = BatchMetadata(batch.base_sequence, last_sequence(batch), base_offset)
        now = self._producer_limit.clock()
        if before is None or before.epoch != batch.producer_epoch:
            state = ProducerState(batch.producer_epoch, (written,), now)
        else:
            recent = before.batches[1 - _BATCHES_PER_PRODUCER :]
            state = ProducerState(before.epoch, (*recent, written), now)
        self._states[batch.producer_id] = state
        if before is None:
            self._producer_limit.grow(1)
        return before

    def restore(self, producer_id: int, before: ProducerState | None) -> None:
        """Undo an `update`."""
        if before is None:
            self.remove_producer(producer_id)
            return
        known = producer_id in self._states
        self._states[producer_id] = before
        if not known:  # removed since
            self._producer_limit.grow(1)

    def dump(self) -> bytes:
        """Return a snapshot."""
        out = bytearray()
        for producer_id, state in self._states.items():
            out += _HEAD.pack(producer_id, state.epoch, len(state.batches))
            for written in state.batches:
                out += _BATCH.pack(*written)
        return _header(out) + out

    @classmethod
    def load(cls, data: bytes) -> ProducerStates | None:
        """Return the states of a snapshot, as if written now; None if it is damaged."""
        states = cls()
        now = states._producer_limit.clock()
        position = len(_MAGIC) + _CRC.size
        if data[:position] != _header(data[position:]):
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


def _header(body: bytes | bytearray) -> bytes:
    return _MAGIC + _CRC.pack(crc32c(body))


def last_sequence(batch: Batch) -> int:
    """Return the sequence number of the last record of a batch."""
    return (batch.base_sequence + batch.last_offset_delta) % _SEQUENCE_MODULUS
