"""Record batches of a broker's response, turned into messages in columns.

Rules:

- Every batch is checked (CRC32C) before it is decoded.
- Control records and records of aborted transactions are no messages, but their offsets count as
  read.
- The bytes decompressed at a time are bounded, however large a small batch becomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns, clamp_timestamp
from hadoop_loader._fetch.requests import FetchedPartition
from headworks._kafka.records import HEADER_SIZE, Batch, InvalidBatchError, decompress, iter_batches
from headworks._kafka.records.batch import APPEND_TIME, CONTROL, TRANSACTIONAL
from headworks._kafka.records.record import iter_records
from headworks._native import COMPILED, decoder
from headworks.errors import CorruptError

_MAX_DECODED_BYTES = 64 << 20  # of the batches that become messages together
_MAX_BATCH_BYTES = 256 << 20
_MIN_RECORD_BYTES = 7


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
    pending: list[tuple[PartitionBatch, bytes | memoryview]] = []
    size = 0
    for block in found:
        body = _decompressed(block)
        if pending and size + len(body) > _MAX_DECODED_BYTES:
            yield decode(pending)
            pending, size = [], 0
        pending.append((block, body))
        size += len(body)
    if pending:
        yield decode(pending)


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
    bounds = np.zeros((max(wanted) + 1, 2), np.int64)
    for partition, ends in wanted.items():
        bounds[partition] = ends
    limits = bounds[chunk.partitions]
    good = (chunk.offsets >= limits[:, 0]) & (chunk.offsets < limits[:, 1])
    return chunk if good.all() else chunk.where(good)


def advance(
    remaining: Remaining, partitions: Sequence[TopicPartition], at: Mapping[TopicPartition, int]
) -> None:
    """Remove from `remaining` what was read up to the offsets in `at`."""
    for partition in partitions:
        if partition in remaining:
            _, end = remaining.pop(partition)
            if at[partition] < end:
                remaining[partition] = (at[partition], end)


def _decompressed(block: PartitionBatch) -> bytes | memoryview:
    batch = block.batch
    body = block.reply[batch.position + HEADER_SIZE : batch.position + batch.size]
    unpacked = decompress(batch.codec, body, limit=_MAX_BATCH_BYTES) if batch.codec else body
    if batch.record_count < 0 or batch.record_count * _MIN_RECORD_BYTES > len(unpacked):
        raise InvalidBatchError("records", f"{batch.record_count} records do not fit into it")
    return unpacked


def _decode_objects(found: list[tuple[PartitionBatch, bytes | memoryview]]) -> MessageColumns:
    return MessageColumns.of(
        FetchedMessage(block.partition, r.offset, clamp_timestamp(r.timestamp), r.key, r.value)
        for block, _ in found
        for r in iter_records(block.reply, block.batch, limit=_MAX_BATCH_BYTES)
    )


def _decode_records(found: list[tuple[PartitionBatch, bytes | memoryview]]) -> MessageColumns:
    data = b"".join(body for _, body in found)
    described = tuple(_described(block.batch, len(body)) for block, body in found)
    wrong, *arrays = decoder.find_records(data, described)
    if wrong >= 0:
        at = found[wrong][0].batch.base_offset
        raise CorruptError(f"the records of the batch at offset {at} do not decode")
    offsets, timestamps, keys, values = (np.frombuffer(array, np.int64) for array in arrays)
    partitions = np.repeat(
        np.array([block.partition for block, _ in found], np.int32),
        np.array([block.batch.record_count for block, _ in found], np.int64),
    )
    return MessageColumns(
        np.frombuffer(data, np.uint8),
        partitions,
        offsets,
        timestamps,
        keys.reshape(-1, 2),
        values.reshape(-1, 2),
    )


def _described(batch: Batch, size: int) -> tuple[int, int, int, int, int]:
    append_time = batch.max_timestamp if batch.attributes & APPEND_TIME else -1
    return size, batch.record_count, batch.base_offset, batch.base_timestamp, append_time
