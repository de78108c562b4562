"""Record batches of a broker's response, turned into messages in columns.

Rules:

- Every batch is checked (CRC32C) before it is decoded.
- Control records and records of aborted transactions are no messages, but their offsets count as
  read.
- The bytes decompressed at a time are bounded, however large a small batch becomes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from hadoop_loader._fetch.messages import (
    FetchedMessage,
    MessageColumns,
    RecordColumns,
    clamp_timestamp,
)
from hadoop_loader._fetch.requests import FetchedPartition
from hadoop_loader._fetch.row_numbers import choose_inside, int64s, number_array
from headworks._kafka.records import (
    HEADER_SIZE,
    Batch,
    InvalidBatchError,
    decompress_into,
    iter_batches,
)
from headworks._kafka.records.batch import APPEND_TIME, CONTROL, TRANSACTIONAL
from headworks._kafka.records.record import iter_records
from headworks._native import COMPILED, decoder
from headworks.errors import CorruptError

_MAX_DECODED_BYTES = 64 << 20  # of the batches that become messages together
_MAX_BATCH_BYTES = 256 << 20
_MIN_RECORD_BYTES = 7
_MIN_ROOM_BYTES = 1 << 16
_GROWTH_FACTOR = 8
_NUMBER = struct.Struct("=i")


TopicPartition = tuple[str, int]
Remaining = dict[TopicPartition, tuple[int, int]]  # offsets still to be read: (next, end)


class PartitionBatch(NamedTuple):
    """A batch with messages, its partition, and the response that it lies in."""

    partition: int
    batch: Batch
    reply: memoryview


def data_batches(
    fetched: FetchedPartition, start: int
) -> tuple[list[PartitionBatch], int, InvalidBatchError | None]:
    """Return the batches that hold messages from offset `start` on, up to a damaged one.

    Also returns the offset after them all, and the damage if there is some. Raises
    InvalidBatchError("magic") for an old record format.
    """
    found: list[PartitionBatch] = []
    position = start
    aborted = sorted(fetched.aborted, key=lambda entry: entry[1])
    dropped: set[int] = set()
    batches = iter_batches(fetched.records)
    while True:
        try:
            batch = next(batches, None)
        except InvalidBatchError as error:
            if error.reason == "magic":
                raise
            return found, position, error
        if batch is None:
            return found, position, None
        while aborted and aborted[0][1] <= batch.last_offset:
            dropped.add(aborted.pop(0)[0])
        undone = batch.attributes & TRANSACTIONAL and batch.producer_id in dropped
        if batch.attributes & CONTROL:
            dropped.discard(batch.producer_id)  # its transaction ends here
        elif batch.record_count and not undone and batch.last_offset >= start:
            found.append(PartitionBatch(fetched.partition, batch, fetched.records))
        position = max(position, batch.last_offset + 1)


def decode_batches(
    found: Sequence[PartitionBatch], *, compiled: bool = COMPILED
) -> Iterator[MessageColumns]:
    """Yield all messages of the batches, in groups of bounded size."""
    decode = _decode_records if compiled else _decode_objects
    room = _Room(_first_room(found))
    for at, block in enumerate(found):
        while not room.add(block):
            if room.blocks:
                yield decode(room)
                room = _Room(_first_room(found[at:]))
            else:
                room = _Room(_larger_room(room))
    if room.blocks:
        yield decode(room)


def decode_batch(block: PartitionBatch, *, compiled: bool = COMPILED) -> MessageColumns | str:
    """Return the messages of one batch, or why its records do not decode."""
    try:
        return next(decode_batches([block], compiled=compiled))
    except CorruptError as error:
        return error.message


def within_ranges(
    topic: str, chunk: MessageColumns, remaining: Mapping[tuple[str, int], tuple[int, int]]
) -> MessageColumns:
    """Return the messages inside the ranges: a batch may begin before one, or end after it."""
    wanted = {partition: ends for (name, partition), ends in remaining.items() if name == topic}
    chosen = choose_inside(chunk.partitions, chunk.offsets, wanted)
    return chunk if chosen is None else chunk.where(chosen)


def advance(
    remaining: Remaining, partitions: Sequence[TopicPartition], at: Mapping[TopicPartition, int]
) -> None:
    """Remove from `remaining` what was read up to the offsets in `at`."""
    for partition in partitions:
        if partition in remaining:
            _, end = remaining.pop(partition)
            if at[partition] < end:
                remaining[partition] = (at[partition], end)


class _Room:
    """Memory into which the records of batches are decompressed, one batch after another.

    Memory that is never written costs nothing, so there may be more than enough.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.blocks: list[tuple[PartitionBatch, int]] = []  # and the bytes of their records
        self._memory = memoryview(pa.allocate_buffer(size)).cast("B")
        self._used = 0  # bytes of the memory

    @property
    def data(self) -> memoryview:
        """The records of all blocks."""
        return self._memory[: self._used]

    def add(self, block: PartitionBatch) -> bool:
        """Add the records of a batch; return False if there is too little room."""
        batch = block.batch
        body = block.reply[batch.position + HEADER_SIZE : batch.position + batch.size]
        size = decompress_into(batch.codec, body, self._memory[self._used :])
        if size is None:
            return False
        if batch.record_count < 0 or batch.record_count * _MIN_RECORD_BYTES > size:
            raise InvalidBatchError("records", f"{batch.record_count} records do not fit into it")
        self.blocks.append((block, size))
        self._used += size
        return True


def _first_room(found: Sequence[PartitionBatch]) -> int:
    """Return a size that is probably enough for batches."""
    size = sum(_GROWTH_FACTOR * block.batch.size for block in found)
    return min(max(size, _MIN_ROOM_BYTES), _MAX_DECODED_BYTES)


def _larger_room(room: _Room) -> int:
    """Return the next size to try for a batch alone."""
    if room.size >= _MAX_BATCH_BYTES:
        reason = f"decompressed, the records exceed {_MAX_BATCH_BYTES} bytes"
        raise InvalidBatchError("compression", reason)
    return min(room.size * _GROWTH_FACTOR, _MAX_BATCH_BYTES)


def _decode_objects(room: _Room) -> MessageColumns:
    return MessageColumns.of(
        FetchedMessage(block.partition, r.offset, clamp_timestamp(r.timestamp), r.key, r.value)
        for block, _ in room.blocks
        for r in iter_records(block.reply, block.batch, limit=_MAX_BATCH_BYTES)
    )


def _decode_records(room: _Room) -> MessageColumns:
    data, found = room.data, room.blocks
    described = tuple(_described(block.batch, size) for block, size in found)
    wrong, *arrays = decoder.find_records(data, described)
    if wrong >= 0:
        at = found[wrong][0].batch.base_offset
        raise CorruptError(f"the records of the batch at offset {at} do not decode")
    partitions = b"".join(
        _NUMBER.pack(block.partition) * block.batch.record_count for block, _ in found
    )
    return MessageColumns(
        data, RecordColumns(number_array(partitions, pa.int32()), *map(int64s, arrays))
    )


def _described(batch: Batch, size: int) -> tuple[int, int, int, int, int]:
    append_time = batch.max_timestamp if batch.attributes & APPEND_TIME else -1
    return size, batch.record_count, batch.base_offset, batch.base_timestamp, append_time
