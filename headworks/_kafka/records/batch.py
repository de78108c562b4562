"""The header of a record batch (format v2): read it, check it, patch what may be patched.

Layout (big endian), 61 bytes before the records:

    base offset 8 | length 4 | leader epoch 4 | magic 1 | CRC32C 4 | attributes 2 |
    last offset delta 4 | base timestamp 8 | max timestamp 8 | producer id 8 |
    producer epoch 2 | base sequence 4 | record count 4 | records

Rules:

- Nothing here copies records; buffers are read in place.
- The CRC covers everything after itself. Base offset and leader epoch lie before it, so they may
  be patched freely; any other change must compute the CRC again.
- Offsets advance by `last offset delta + 1`, never by the record count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from headworks.errors import CorruptError

Buffer = bytes | bytearray | memoryview
# A valid batch without flags, whose records fill its offsets: where it starts and stops, its number
# of records, and its largest timestamp.
Plain = tuple[int, int, int, int]
SEQUENCE_MODULUS = 1 << 31  # at which the sequence numbers of an idempotent producer wrap

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
_new = tuple.__new__
LENGTH_PREFIX = 12  # base offset and length: what the length field does not count
_CRC_FROM = 21  # the first byte that the CRC covers: the attributes
_PLACEMENT = struct.Struct(">qii")
_PLAIN = struct.Struct(">8xi4xbIhi8xqqhii")  # the fields that a batch of a `PlainRun` shows
MAGIC = 2

CODEC_MASK = 0b111
APPEND_TIME = 0b1000
TRANSACTIONAL = 0b10000
CONTROL = 0b100000
_LAST_CODEC = 4


class InvalidBatchError(CorruptError):
    """Bytes that are not a whole, undamaged record batch of format v2; `reason` is one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Batch(NamedTuple):
    """A record batch's header, and where its bytes lie in the buffer it was read from."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_PREFIX

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """Number of the compression codec."""
        return self.attributes & CODEC_MASK


class PlainRun(NamedTuple):
    """Plain batches of no idempotent producer, or of one that numbers them without a gap."""

    batches: list[Plain]
    producer_id: int  # negative: of no idempotent producer, and the next two say nothing
    epoch: int
    first_sequence: int


def read_header(buffer: Buffer, position: int = 0) -> Batch:
    """Read the header at `position`. InvalidBatchError ("torn") if it is not whole."""
    if len(buffer) - position < HEADER_SIZE:
        raise InvalidBatchError(
            "torn", f"{len(buffer) - position} bytes are too few for a batch header"
        )
    return Batch._make((*HEADER.unpack_from(buffer, position), position))


def check_batch(buffer: Buffer, position: int = 0, end: int | None = None) -> Batch:
    """Read the batch at `position` and verify its length, magic and CRC.

    `InvalidBatchError.reason` is "torn" (the buffer ends inside it), "magic", "length" or "crc".
    """
    limit = len(buffer) if end is None else end
    if limit - position < HEADER_SIZE:
        raise InvalidBatchError("torn", f"{limit - position} bytes are too few for a batch header")
    fields = HEADER.unpack_from(buffer, position)
    _, length, _, magic, crc, _, delta, _, _, _, _, _, _ = fields  # a field by name takes longer
    if magic != MAGIC:
        raise InvalidBatchError("magic", f"magic is {magic}, not 2")
    if length < HEADER_SIZE - LENGTH_PREFIX:
        raise InvalidBatchError("length", f"batch length {length} is smaller than its header")
    stop = position + LENGTH_PREFIX + length
    if stop > limit:
        raise InvalidBatchError(
            "torn", f"batch of {stop - position} bytes ends {stop - limit} bytes too late"
        )
    if delta < 0:
        raise InvalidBatchError("length", f"last offset delta {delta} is negative")
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    found = crc32c(view[position + _CRC_FROM : stop])
    if found != crc:
        raise InvalidBatchError("crc", f"CRC32C is {found:#010x}, the header says {crc:#010x}")
    return _new(Batch, (*fields, position))


def plain_run(buffer: memoryview, spans: Iterable[tuple[int, int]]) -> PlainRun:
    """Return the batches that fill these spans, up to the first that does not continue the run.

    `check_batch` tells what that one is, and whether it is valid.
    """
    found: list[Plain] = []
    run_producer = run_epoch = first = following = -1
    unpack = _PLAIN.unpack_from
    for start, stop in spans:
        if stop - start < HEADER_SIZE:
            break
        length, magic, crc, attributes, delta, newest, producer, epoch, sequence, count = unpack(
            buffer, start
        )
        if (
            length != stop - start - LENGTH_PREFIX
            or magic != MAGIC
            or not 0 <= attributes <= _LAST_CODEC
            or not 1 <= count == delta + 1
            or crc32c(buffer[start + _CRC_FROM : stop]) != crc
        ):
            break
        if producer >= 0 or run_producer >= 0:
            if not found and epoch >= 0 and sequence >= 0:
                run_producer, run_epoch, first = producer, epoch, sequence
            elif producer != run_producer or sequence != following or epoch != run_epoch:
                break
            following = (sequence + count) % SEQUENCE_MODULUS
        found.append((start, stop, count, newest))
    return _new(PlainRun, (found, run_producer, run_epoch, first))


def iter_batches(buffer: Buffer, *, verify: bool = True) -> Iterator[Batch]:
    """Yield every whole batch of a buffer, in order, up to one that the buffer cuts short.

    The last batch of a fetch reply may be incomplete and is dropped. Damaged bytes raise
    InvalidBatchError.
    """
    position, limit = 0, len(buffer)
    while limit - position >= HEADER_SIZE:
        batch = read_header(buffer, position)
        if batch.magic == MAGIC and position + batch.size > limit:
            return
        if verify or batch.magic != MAGIC or batch.length < HEADER_SIZE - LENGTH_PREFIX:
            batch = check_batch(buffer, position)
        yield batch
        position += batch.size


def patch_placement(
    buffer: bytearray | memoryview, position: int, base_offset: int, length: int, epoch: int
) -> None:
    """Write base offset and leader epoch, and the same length, in place. The CRC stays valid."""
    _PLACEMENT.pack_into(buffer, position, base_offset, length, epoch)


def restamp_append_time(buffer: bytearray | memoryview, batch: Batch, now_ms: int) -> None:
    """Give a batch the time of the log: set the flag and the max timestamp, and update the CRC.

    The base timestamp stays, because the records store differences to it.
    """
    position = batch.position
    struct.pack_into(">h", buffer, position + _CRC_FROM, batch.attributes | APPEND_TIME)
    struct.pack_into(">q", buffer, position + 35, now_ms)
    covered = memoryview(buffer)[position + _CRC_FROM : position + batch.size]
    struct.pack_into(">I", buffer, position + 17, crc32c(covered))
