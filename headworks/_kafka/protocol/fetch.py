"""Fetch requests and replies, by hand: records go from the file to the socket by sendfile.

A reply is a list of pieces in sending order: bytes, and slices of segment files. Versions 4 to 12
are served; 12 is the first with compact lengths and tagged fields.

Rule: the length of a slice is fixed when the reply is encoded. The bytes of a segment before its
end never change, so the slice that is sent later is the one that was announced.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from headworks._kafka.protocol.frame import MalformedError, check_count, skip_tags
from headworks._kafka.records.batch import Buffer
from headworks._kafka.records.file_slice import FileSlice
from headworks._kafka.records.varint import read_unsigned, write_unsigned

__all__ = [
    "FetchPartition",
    "FetchRequest",
    "PartitionData",
    "Piece",
    "encode_reply",
    "parse_request",
]

Piece = bytes | FileSlice

_FLEXIBLE = 12
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_HEAD = struct.Struct(">iiiib")
_SESSION = struct.Struct(">ii")
_REPLY = struct.Struct(">ii")
_RESULT = struct.Struct(">ihqq")
_LONG = struct.Struct(">q")


class FetchPartition(NamedTuple):
    """One partition of a fetch request."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A parsed fetch request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: tuple[FetchPartition, ...]


class PartitionData(NamedTuple):
    """The answer for one partition. `slice` is None if there are no records."""

    topic: str
    partition: int
    error: int
    high_watermark: int = -1
    log_start: int = -1
    slice: FileSlice | None = None


def parse_request(buffer: Buffer, position: int, end: int, version: int) -> FetchRequest:
    """Parse the body at `position`..`end`. MalformedError if it does not parse."""
    try:
        return _parse(buffer, position, end, version)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise MalformedError(f"fetch v{version} does not parse: {error}") from None


def _parse(buffer: Buffer, position: int, end: int, version: int) -> FetchRequest:
    flexible = version >= _FLEXIBLE
    _, max_wait, min_bytes, max_bytes, _ = _HEAD.unpack_from(buffer, position)
    position += _HEAD.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(buffer, position)
        position += 8
    wanted: list[FetchPartition] = []
    topics, position = _read_count(buffer, position, flexible)
    check_count("topics", topics)
    for _ in range(topics):
        topic, position = _read_text(buffer, position, flexible)
        partitions, position = _read_count(buffer, position, flexible)
        check_count("partitions", partitions)
        for _ in range(partitions):
            item, position = _read_partition(buffer, position, version, topic)
            wanted.append(item)
        check_count("partitions", len(wanted))
        if flexible:
            position = skip_tags(buffer, position)
    if position > end:
        raise MalformedError("partitions run over the request")
    return FetchRequest(
        max_wait, min_bytes, max_bytes, session_id, session_epoch, tuple(wanted)
    )  # the rest, forgotten topics and rack, belongs to sessions and replicas


def _read_partition(
    buffer: Buffer, position: int, version: int, topic: str
) -> tuple[FetchPartition, int]:
    (partition,) = _INT.unpack_from(buffer, position)
    position += 4
    epoch = -1
    if version >= 9:
        (epoch,) = _INT.unpack_from(buffer, position)
        position += 4
    (offset,) = _LONG.unpack_from(buffer, position)
    position += 8
    if version >= 12:
        position += 4  # epoch of the last fetched record
    if version >= 5:
        position += 8  # a follower's log start
    (max_bytes,) = _INT.unpack_from(buffer, position)
    position += 4
    if version >= _FLEXIBLE:
        position = skip_tags(buffer, position)
    return FetchPartition(topic, partition, epoch, offset, max_bytes), position


def _read_count(buffer: Buffer, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, position = read_unsigned(buffer, position)
        return count - 1, position
    (count,) = _INT.unpack_from(buffer, position)
    return count, position + 4


def _read_text(buffer: Buffer, position: int, flexible: bool) -> tuple[str, int]:
    if flexible:
        size, position = read_unsigned(buffer, position)
        size -= 1
    else:
        (size,) = _SHORT.unpack_from(buffer, position)
        position += 2
    if size < 0:
        raise MalformedError("a topic's name is null")
    return str(buffer[position : position + size], "utf-8"), position + size


def encode_reply(
    correlation: int, version: int, reads: Sequence[PartitionData], error: int = 0
) -> list[Piece]:
    """Return the reply frame as pieces. The session id is 0: sessions are declined."""
    flexible = version >= _FLEXIBLE
    topics: dict[str, list[PartitionData]] = {}
    for read in reads:
        topics.setdefault(read.topic, []).append(read)
    pieces: list[Piece] = []
    out = bytearray(b"\0" if flexible else b"")
    out += b"\0\0\0\0"  # throttle time
    if version >= 7:
        out += struct.pack(">hi", error, 0)
    out += _count(len(topics), flexible)
    for topic, group in topics.items():
        name = topic.encode()
        out += (write_unsigned(len(name) + 1) if flexible else _SHORT.pack(len(name))) + name
        out += _count(len(group), flexible)
        for read in group:
            _encode_head(out, read, version)
            if read.slice is not None and read.slice.size:
                pieces += (bytes(out), read.slice)
                out.clear()
            if flexible:
                out += b"\0"
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    pieces.append(bytes(out))
    size = sum(piece.size if isinstance(piece, FileSlice) else len(piece) for piece in pieces)
    first = pieces[0]
    assert isinstance(first, bytes)
    pieces[0] = _REPLY.pack(4 + size, correlation) + first
    return [piece for piece in pieces if piece]


def _encode_head(out: bytearray, read: PartitionData, version: int) -> None:
    """Encode the fields of a partition before its records, with their length."""
    flexible = version >= _FLEXIBLE
    out += _RESULT.pack(read.partition, read.error, read.high_watermark, read.high_watermark)
    if version >= 5:
        out += _LONG.pack(read.log_start)
    out += b"\0" if flexible else b"\xff\xff\xff\xff"  # aborted transactions: null
    if version >= 11:
        out += b"\xff\xff\xff\xff"  # preferred replica: none
    size = read.slice.size if read.slice is not None else 0
    out += write_unsigned(size + 1) if flexible else _INT.pack(size)


def _count(count: int, flexible: bool) -> bytes:
    return write_unsigned(count + 1) if flexible else _INT.pack(count)
