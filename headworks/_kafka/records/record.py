"""The records inside a batch: keys, values, headers, timestamps.

Rules: key and value may be None (a null value is a tombstone) and differ from empty bytes; every
length is checked against the buffer; damage raises `InvalidBatchError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headworks._kafka.records.batch import (
    APPEND_TIME,
    HEADER_SIZE,
    Batch,
    Buffer,
    InvalidBatchError,
)
from headworks._kafka.records.compression import DEFAULT_LIMIT_BYTES, decompress
from headworks._kafka.records.varint import read_varint


class Record(NamedTuple):
    """One message."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def iter_records(
    buffer: Buffer, batch: Batch, *, limit: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """Yield the records of `batch`, which was read from `buffer`; decompress if necessary."""
    return parse_records(record_data(buffer, batch, limit=limit), batch)


def record_data(buffer: Buffer, batch: Batch, *, limit: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """Return the decompressed records of `batch`, which was read from `buffer`."""
    start, stop = batch.position + HEADER_SIZE, batch.position + batch.size
    return decompress(batch.codec, memoryview(buffer)[start:stop], limit=limit)


def parse_records(data: bytes, batch: Batch) -> Iterator[Record]:
    """Yield the records of a batch from its `record_data`."""
    position = 0
    try:
        for _ in range(batch.record_count):
            size, position = read_varint(data, position)
            end = position + size
            if size < 0 or end > len(data):
                raise InvalidBatchError("records", f"a record of {size} bytes runs over its batch")
            yield _record(data, position, batch)
            position = end
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise InvalidBatchError("records", f"a record does not decode: {error}") from None


def _record(data: bytes, position: int, batch: Batch) -> Record:
    position += 1  # attributes: unused by the format
    timestamp_delta, position = read_varint(data, position)
    offset_delta, position = read_varint(data, position)
    key, position = _bytes(data, position)
    value, position = _bytes(data, position)
    count, position = read_varint(data, position)
    headers = []
    for _ in range(count):
        name, position = _bytes(data, position)
        content, position = _bytes(data, position)
        headers.append(((name or b"").decode(), content))
    if batch.attributes & APPEND_TIME:
        timestamp = batch.max_timestamp
    else:
        timestamp = batch.base_timestamp + timestamp_delta
    return Record(batch.base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    if position + size > len(data):
        raise InvalidBatchError("records", f"a field of {size} bytes runs over its batch")
    return data[position : position + size], position + size
