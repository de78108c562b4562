"""Batches for tests."""

from __future__ import annotations

from headworks._kafka.records import Record, encode_batch


def batch(
    count: int = 1,
    *,
    at: int = 0,
    timestamp: int = 1_000,
    size: int = 10,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """A batch of `count` records that say which they are."""
    records = [
        Record(i, timestamp + i, b"k%d" % i, b"v" * size + b"%d" % i, ()) for i in range(count)
    ]
    return bytearray(encode_batch(records, base_offset=at, producer=producer))
