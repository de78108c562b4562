"""Build record batches, for tools and tests that write without a client.

Rule: `check_batch` and `iter_records` read back what is built here.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from headworks._kafka.records.batch import HEADER, HEADER_SIZE, LENGTH_PREFIX
from headworks._kafka.records.compression import Codec, compress
from headworks._kafka.records.record import Record
from headworks._kafka.records.varint import write_varint


def encode_records(records: Sequence[Record], base_timestamp: int) -> bytes:
    """Return the uncompressed body of a batch."""
    out = bytearray()
    for delta, record in enumerate(records):
        body = bytearray(1)
        body += write_varint(record.timestamp - base_timestamp)
        body += write_varint(delta)
        body += _bytes(record.key) + _bytes(record.value)
        body += write_varint(len(record.headers))
        for name, content in record.headers:
            body += _bytes(name.encode()) + _bytes(content)
        out += write_varint(len(body)) + body
    return bytes(out)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """Return one batch of `records`; `producer` is (id, epoch, base sequence)."""
    base_timestamp = records[0].timestamp
    body = compress(codec, encode_records(records, base_timestamp))
    fields = (
        attributes | codec,
        len(records) - 1,
        base_timestamp,
        max(record.timestamp for record in records),
        *producer,
        len(records),
    )
    length = HEADER_SIZE - LENGTH_PREFIX + len(body)
    unsealed = HEADER.pack(base_offset, length, 0, 2, 0, *fields)
    crc = crc32c(unsealed[21:] + body)
    return HEADER.pack(base_offset, length, 0, 2, crc, *fields) + body


def _bytes(value: bytes | None) -> bytes:
    return b"\x01" if value is None else write_varint(len(value)) + value
