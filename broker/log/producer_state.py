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
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headworks._broker.log.aborted_index import AbortedTransaction
from headworks._broker.log.recovery_point import LogPosition
from headworks._broker.log.segment import LogSegment
from headworks._broker.log.transactions import PartitionTransactions
from headworks._kafka.records.batch import SEQUENCE_MODULUS, TRANSACTIONAL, Batch, PlainRun
from headworks.errors import RefusedError

MAX_PRODUCERS = 200_000
_BATCHES_PER_PRODUCER = 5
_EVICTION_DIVISOR = 16  # of the limit, that is removed at once, so that this is rare
_MAGIC = b"HWP3"
_MAGIC_WITHOUT_TRANSACTIONS = b"HWP2"
_CRC = struct.Struct(">I")
_new = tuple.__new__  # a named tuple takes three times as long to create itself
_HEAD = struct.Struct(">qhB")
_BATCH = struct.Struct(">iiq")
_COUNTS = struct.Struct(">II")  # of aborted transactions in the segment before, of open ones
_OPEN = struct.Struct(">qq")  # a producer id, and where its transaction begins


class DuplicateBatchError(RefusedError):
    """The log has this batch already, at `base_offset`."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"already in the log at offset {base_offset}")
        self.base_offset = base_offset


class OutOfOrderSequenceError(RefusedError):
    """The first sequence number of a batch does not follow the last one."""


class InvalidProducerEpochError(RefusedError):
    """A batch has an older epoch than its producer."""


class OpenTransactionError(RefusedError):
    """A producer writes outside of its transaction, while that is open in the partition."""


class BatchMetadata(NamedTuple):
    """A batch that was appended."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class ProducerState(NamedTuple):
    """The state of one producer in one partition."""

    epoch: int
    batches: tuple[BatchMetadata, ...]  # the last five of this epoch, oldest first
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
        self.transactions = PartitionTransactions()  # of these producers
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
        """Yield (last write, these states, producer id), the oldest write first.

        A producer with an open transaction is not among them: it must not be removed.
        """
        for producer_id, state in self._states.items():
            if producer_id not in self.transactions.open:
                yield state.last_write, self, producer_id

    def remove_producer(self, producer_id: int) -> None:
        """Remove a producer, if it is known."""
        if self._states.pop(producer_id, None) is not None:
            self._producer_limit.count -= 1

    def get(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer, None if it is unknown."""
        return self._states.get(producer_id)

    def items(self) -> Iterator[tuple[int, ProducerState]]:
        """Yield (producer id, state), the oldest write first."""
        yield from self._states.items()

    @property
    def next_producer_id(self) -> int:
        """The producer id after the largest one."""
        return max(self._states, default=-1) + 1

    def last_batches(self) -> frozenset[int]:
        """Return the base offset of the last batch of each producer."""
        return frozenset(
            state.batches[-1].base_offset for state in self._states.values() if state.batches
        )

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
        if batch.producer_epoch > state.epoch or not state.batches:
            expected = 0
        else:
            for written in state.batches:
                if written.first_sequence == first and written.last_sequence == last:
                    self._check_retry(batch, written.base_offset)
                    raise DuplicateBatchError(written.base_offset)
            expected = (state.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
        if first != expected:
            raise OutOfOrderSequenceError(
                f"producer {batch.producer_id} sent sequence number {first}, not {expected}"
            )
        opened = self.transactions
        if (opened.staged or not opened.none) and not batch.attributes & TRANSACTIONAL:
            self._check_outside(batch.producer_id)

    def continues(self, run: PlainRun) -> bool:
        """Return whether a run is what a known producer sends next, and may be taken unchecked.

        False while any transaction is open here; `check` then says what is right.
        """
        state, opened = self._states.get(run.producer_id), self.transactions
        return (
            state is not None
            and state.epoch == run.epoch
            and len(state.batches) > 0
            and (state.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS == run.first_sequence
            and opened.none
            and not opened.staged
        )

    def extend(self, run: PlainRun, base_offset: int) -> ProducerState:
        """Note a run that continues, and return the state before it, for `restore`."""
        before = self._states.pop(run.producer_id)  # as in `update`
        recent, first, base = list(before.batches), run.first_sequence, base_offset
        for _, _, count, _ in run.batches:
            last = (first + count - 1) % SEQUENCE_MODULUS
            recent.append(_new(BatchMetadata, (first, last, base)))
            first, base = (last + 1) % SEQUENCE_MODULUS, base + count
        kept = tuple(recent[-_BATCHES_PER_PRODUCER:])
        state = _new(ProducerState, (before.epoch, kept, self._producer_limit.clock()))
        self._states[run.producer_id] = state
        return before

    def _check_retry(self, batch: Batch, base_offset: int) -> None:
        """Raise OutOfOrderSequenceError for a batch that only looks like a retry.

        A client ends no transaction while a batch of it is unanswered. librdkafka may drop a
        message with an aborted transaction, and give its sequence number to the next one.
        """
        producer_id = batch.producer_id
        if batch.attributes & TRANSACTIONAL and self.transactions.has_ended(
            producer_id, base_offset
        ):
            raise OutOfOrderSequenceError(
                f"producer {producer_id} sent sequence number {batch.base_sequence} again, which"
                f" is at offset {base_offset}, in a transaction that has ended"
            )

    def _check_outside(self, producer_id: int) -> None:
        """Raise OpenTransactionError if a producer may not write outside of a transaction."""
        if self.transactions.is_open(producer_id):
            raise OpenTransactionError(
                f"producer {producer_id} has an open transaction here, and the batch is not in it"
            )

    def update(self, batch: Batch, base_offset: int) -> ProducerState | None:
        """Note an append, and return the state before it, for `restore`."""
        before = self._states.pop(
            batch.producer_id, None
        )  # inserted again as the last: the order is that of the writes
        written = _new(BatchMetadata, (batch.base_sequence, last_sequence(batch), base_offset))
        now = self._producer_limit.clock()
        if before is None or before.epoch != batch.producer_epoch:
            state = ProducerState(batch.producer_epoch, (written,), now)
        else:
            recent = before.batches[1 - _BATCHES_PER_PRODUCER :]
            state = _new(ProducerState, (before.epoch, (*recent, written), now))
        self._states[batch.producer_id] = state
        if before is None:
            self._producer_limit.grow(1)
        return before

    def fence(self, producer_id: int, epoch: int) -> None:
        """Note the epoch of a marker: batches of an older one are rejected from now on."""
        before = self._states.get(producer_id)
        if before is not None and before.epoch < epoch:
            self._states[producer_id] = ProducerState(epoch, (), before.last_write)

    def restore(self, producer_id: int, before: ProducerState | None) -> None:
        """Undo an `update`."""
        if before is None:
            self.remove_producer(producer_id)
            return
        known = producer_id in self._states
        self._states[producer_id] = before
        if not known:  # removed since
            self._producer_limit.grow(1)

    def dump(self, before: LogSegment | None = None) -> bytes:
        """Return a snapshot, at the end of the segment `before`."""
        open_ones = self.transactions.open
        out = bytearray(_COUNTS.pack(0 if before is None else len(before.aborted), len(open_ones)))
        for producer_id, begin in open_ones.items():
            out += _OPEN.pack(producer_id, begin.offset)
        for producer_id, state in self._states.items():
            out += _HEAD.pack(producer_id, state.epoch, len(state.batches))
            for written in state.batches:
                out += _BATCH.pack(*written)
        return _header(out) + out

    @classmethod
    def load(cls, data: bytes) -> ProducerStates | None:
        """Return the states of a snapshot, as if written now; None if it is damaged.

        Only the offsets of open transactions are known, not yet their positions.
        """
        states = cls()
        now = states._producer_limit.clock()
        magic, position = data[: len(_MAGIC)], len(_MAGIC) + _CRC.size
        if data[:position] != _header(data[position:], magic):
            return None
        open_count = 0
        try:
            if magic == _MAGIC:
                _, open_count = _COUNTS.unpack_from(data, position)
                position += _COUNTS.size
            elif magic != _MAGIC_WITHOUT_TRANSACTIONS:
                return None
            for _ in range(open_count):
                producer_id, begin = _OPEN.unpack_from(data, position)
                states.transactions.begin(producer_id, LogPosition(begin, begin, 0))
                position += _OPEN.size
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


def aborted_before(path: Path) -> int | None:
    """Return how many aborted transactions end in the segment before a snapshot; None if unknown.

    Only the beginning of the file is read, and not verified.
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC) + _CRC.size + _COUNTS.size)
    except FileNotFoundError:
        return None
    if head.startswith(_MAGIC_WITHOUT_TRANSACTIONS):
        return 0
    if len(head) < len(_MAGIC) + _CRC.size + _COUNTS.size or not head.startswith(_MAGIC):
        return None
    aborted: int = _COUNTS.unpack_from(head, len(_MAGIC) + _CRC.size)[0]
    return aborted


def note_marker(
    states: ProducerStates,
    segment: LogSegment,
    marker: Batch,
    commit: bool | None,
    *,
    exposed: int,
) -> None:
    """Note a marker in `segment`: its transaction is no longer open.

    Readers see what lies before the offset `exposed`.
    """
    if commit is None:
        return
    states.fence(marker.producer_id, marker.producer_epoch)
    begin = states.transactions.end(marker.producer_id, marker.base_offset, exposed)
    if begin is not None and not commit:
        first = states.transactions.first_open()
        stable = marker.base_offset + 1 if first is None else first.offset
        segment.aborted.append(
            AbortedTransaction(marker.producer_id, begin.offset, marker.base_offset, stable)
        )


def _header(body: bytes | bytearray, magic: bytes = _MAGIC) -> bytes:
    return magic + _CRC.pack(crc32c(body))


def last_sequence(batch: Batch) -> int:
    """Return the sequence number of the last record of a batch."""
    return (batch.base_sequence + batch.last_offset_delta) % SEQUENCE_MODULUS
