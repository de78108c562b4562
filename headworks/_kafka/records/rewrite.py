"""Rewrite a batch: without some records, for log compaction, or with another codec.

Rules:

- Offsets never change. Base offset, last offset delta, producer, and sequence stay, so a removed
  record leaves a gap. The CRC is computed again. Compaction keeps the codec.
- A record that stays keeps every byte, except for its timestamp delta.
- A batch that keeps tombstones for a while carries their delete horizon. Bit 6 of its attributes
  says that the base timestamp is that time. Clients compute the same timestamps from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from headworks._kafka.records.batch import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    TRANSACTIONAL,
    Batch,
    InvalidBatchError,
)
from headworks._kafka.records.compression import Codec, compress
from headworks._kafka.records.varint import read_varint, write_varint

DELETE_HORIZON = 0b100_0000
_NO_TIMESTAMP = -1
_CRC_FROM = 21


class RawRecord(NamedTuple):
    """A record as compaction reads it; `rest` are the bytes behind the timestamp."""

    offset: int
    timestamp: int
    attributes: int
    key: bytes | None
    tombstone: bool
    rest: bytes


def parse_raw_records(data: bytes, batch: Batch) -> Iterator[RawRecord]:
    """Yield the records of a batch from its `record_data`. InvalidBatchError for damage."""
    position = 0
    try:
        for _ in range(batch.record_count):
            size, position = read_varint(data, position)
            end = position + size
            if size < 1 or end > len(data):
                raise InvalidBatchError("records", f"a record of {size} bytes runs over its batch")
            yield _entry(data, position, end, batch)
            position = end
    except (IndexError, ValueError) as error:
        raise InvalidBatchError("records", f"a record does not decode: {error}") from None


def _entry(data: bytes, position: int, end: int, batch: Batch) -> RawRecord:
    attributes = data[position]
    timestamp_delta, rest = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, rest)
    size, position = read_varint(data, position)
    key = None
    if size >= 0:
        key = data[position : position + size]
        position += size
    value_size, position = read_varint(data, position)
    if max(position, position + value_size) > end:
        raise InvalidBatchError("records", "a field runs over its record")
    timestamp = batch.base_timestamp + timestamp_delta
    return RawRecord(
        batch.base_offset + offset_delta, timestamp, attributes, key, value_size < 0, data[rest:end]
    )


def delete_horizon(batch: Batch) -> int | None:
    """Return when the tombstones of a batch may be removed (ms), or None if it is not set."""
    return batch.base_timestamp if batch.attributes & DELETE_HORIZON else None


def rebuild_batch(batch: Batch, entries: Iterable[RawRecord], horizon: int | None) -> bytes:
    """Return `batch` with only these records; `horizon` is when their tombstones may be removed.

    There must be at least one record. The records are read once, one at a time.
    """
    base = batch.base_timestamp if horizon is None else horizon
    body, count, newest = bytearray(), 0, None
    for entry in entries:
        count += 1
        newest = entry.timestamp if newest is None else max(newest, entry.timestamp)
        record = bytes((entry.attributes,)) + write_varint(entry.timestamp - base) + entry.rest
        body += write_varint(len(record)) + record
    latest = batch.max_timestamp
    if newest is not None and not batch.attributes & APPEND_TIME:
        latest = newest
    attributes = batch.attributes if horizon is None else batch.attributes | DELETE_HORIZON
    return _sealed(
        batch._replace(
            attributes=attributes,
            base_timestamp=base,
            max_timestamp=latest,
            record_count=count,
        ),
        compress(batch.codec, bytes(body)),
    )


def empty_batch(batch: Batch) -> bytes:
    """Return `batch` without records and transaction, with its offsets, producer, sequence."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON | TRANSACTIONAL | CONTROL)
    return _sealed(
        batch._replace(
            attributes=attributes,
            base_timestamp=_NO_TIMESTAMP,
            max_timestamp=_NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def without_transaction(batch: Batch, data: bytes) -> bytes:
    """Return `batch`, whose bytes are `data`, as one that no transaction holds back any more."""
    return _sealed(batch._replace(attributes=batch.attributes & ~TRANSACTIONAL), data[HEADER_SIZE:])


def recompressed(batch: Batch, data: bytes, codec: Codec) -> bytes:
    """Return `batch` with its records compressed by `codec`; `data` is their `record_data`."""
    attributes = batch.attributes & ~CODEC_MASK | codec
    return _sealed(batch._replace(attributes=attributes), compress(codec, data))


def _sealed(batch: Batch, body: bytes) -> bytes:
    length = HEADER_SIZE - LENGTH_PREFIX + len(body)
    out = bytearray(HEADER.pack(*batch._replace(length=length)[: len(Batch._fields) - 1]))
    out += body
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[_CRC_FROM:]))
    return bytes(out)
