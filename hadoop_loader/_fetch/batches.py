"""Record batches of a broker's response, turned into messages in columns.

Rules:

- Every batch is checked (CRC32C) before it is decoded.
- Control records and records of aborted transactions are no messages, but their offsets count as
  read.
- The bytes decompressed at a time are bounded, however large a small batch becomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns, clamp_timestamp
from hadoop_loader._fetch.requests import FetchedPartition
from hadoop_loader._jit.backend import BackendSelector
from headworks._kafka.records import HEADER_SIZE, Batch, InvalidBatchError, decompress, iter_batches
from headworks._kafka.records.batch import APPEND_TIME, CONTROL, TRANSACTIONAL
from headworks._kafka.records.record import iter_records
from headworks.errors import CorruptError

__all__ = ["PartitionBatch", "data_batches", "decode_batches"]

_MAX_DECODED_BYTES = 64 << 20  # of the batches that become messages together
_MAX_BATCH_BYTES = 256 << 20
_MIN_RECORD_BYTES = 7


class PartitionBatch(NamedTuple):
    """A batch with messages, its partition, and the response that it lies in."""

    partition: int
    batch: Batch
    reply: memoryview


def data_batches(fetched: FetchedPartition, start: int) -> tuple[list[PartitionBatch], int]:
    """Return the batches that hold messages from offset `start` on, and the offset after them all.

    Raises InvalidBatchError for damage, and InvalidBatchError("magic") for an old record format.
    """
    found: list[PartitionBatch] = []
    position = start
    aborted = sorted(fetched.aborted, key=lambda entry: entry[1])
    dropped: set[int] = set()
    for batch in iter_batches(fetched.records):
        while aborted and aborted[0][1] <= batch.last_offset:
            dropped.add(aborted.pop(0)[0])
        undone = batch.attributes & TRANSACTIONAL and batch.producer_id in dropped
        if batch.attributes & CONTROL:
            dropped.discard(batch.producer_id)  # its transaction ends here
        elif batch.record_count and not undone and batch.last_offset >= start:
            found.append(PartitionBatch(fetched.partition, batch, fetched.records))
        position = max(position, batch.last_offset + 1)
    return found, position


def decode_batches(
    found: Sequence[PartitionBatch], backend: BackendSelector
) -> Iterator[MessageColumns]:
    """Yield all messages of the batches, in groups of bounded size."""
    pending: list[tuple[PartitionBatch, bytes | memoryview]] = []
    size = 0
    for block in found:
        body = _decompressed(block)
        if pending and size + len(body) > _MAX_DECODED_BYTES:
            yield _decode_records(pending, backend)
            pending, size = [], 0
        pending.append((block, body))
        size += len(body)
    if pending:
        yield _decode_records(pending, backend)


def _decompressed(block: PartitionBatch) -> bytes | memoryview:
    batch = block.batch
    body = block.reply[batch.position + HEADER_SIZE : batch.position + batch.size]
    unpacked = decompress(batch.codec, body, limit=_MAX_BATCH_BYTES) if batch.codec else body
    if batch.record_count < 0 or batch.record_count * _MIN_RECORD_BYTES > len(unpacked):
        raise InvalidBatchError("records", f"{batch.record_count} records do not fit into it")
    return unpacked


def _decode_records(
    found: list[tuple[PartitionBatch, bytes | memoryview]], backend: BackendSelector
) -> MessageColumns:
    if not backend.use_compiled(sum(len(body) for _, body in found)):
        return MessageColumns.of(
            FetchedMessage(block.partition, r.offset, clamp_timestamp(r.timestamp), r.key, r.value)
            for block, _ in found
            for r in iter_records(block.reply, block.batch, limit=_MAX_BATCH_BYTES)
        )
    from hadoop_loader._fetch.record_spans import find_records

    batches = [block.batch for block, _ in found]
    data = np.frombuffer(b"".join(body for _, body in found), np.uint8)
    ends = np.cumsum([len(body) for _, body in found], dtype=np.int64)
    counts = np.array([b.record_count for b in batches], np.int64)
    total = int(counts.sum())
    offsets, timestamps = np.empty(total, np.int64), np.empty(total, np.int64)
    keys, values = np.empty((total, 2), np.int64), np.empty((total, 2), np.int64)
    stamps = [b.max_timestamp if b.attributes & APPEND_TIME else -1 for b in batches]
    wrong = find_records(
        data,
        np.concatenate(([0], ends[:-1])),
        ends,
        counts,
        np.array([b.base_offset for b in batches], np.int64),
        np.array([b.base_timestamp for b in batches], np.int64),
        np.array(stamps, np.int64),
        offsets,
        timestamps,
        keys,
        values,
    )
    if wrong >= 0:
        at = batches[wrong].base_offset
        raise CorruptError(f"the records of the batch at offset {at} do not decode")
    partitions = np.repeat(np.array([b.partition for b, _ in found], np.int32), counts)
    return MessageColumns(data, partitions, offsets, timestamps, keys, values)
