"""Fetch requests and replies, by hand: records go from the file to the socket by sendfile.

A reply is a list of pieces in sending order: bytes, and slices of segment files. Versions 4 to 18
are served. 12 is the first with compact lengths and tagged fields. From 13 on, topics have ids
instead of names. From 15 on, the replica id is a tagged field.

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

Piece = bytes | FileSlice

READ_COMMITTED = 1  # the isolation level
_FLEXIBLE = 12
_TOPIC_IDS = 13
_ID_BYTES = 16
_TAGGED_REPLICA = 15
_REPLICA_BYTES = 4
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_HEAD = struct.Struct(">iiiib")
_SESSION = struct.Struct(">ii")
_REPLY = struct.Struct(">ii")
_RESULT = struct.Struct(">ihqq")
_LONG = struct.Struct(">q")
_ABORTED = struct.Struct(">qq")


class FetchPartition(NamedTuple):
    """One partition of a fetch request: its topic's name, or (from version 13 on) its id."""

    topic: str | bytes
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
    committed: bool = False  # whether it reads committed records only


class PartitionData(NamedTuple):
    """The answer for one partition. `slice` is None if there are no records.

    `topic` is the name or the id that the request has. `aborted` are the producer id and the first
    offset of each transaction whose records in the slice the client skips.
    """

    topic: str | bytes
    partition: int
    error: int
    high_watermark: int = -1
    log_start: int = -1
    slice: FileSlice | None = None
    last_stable: int | None = None  # None: the high watermark
    aborted: Sequence[tuple[int, int]] = ()


def parse_request(buffer: Buffer, position: int, end: int, version: int) -> FetchRequest:
    """Parse the body at `position`..`end`. MalformedError if it does not parse."""
    try:
        return _parse(buffer, position, end, version)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise MalformedError(f"fetch v{version} does not parse: {error}") from None


def _parse(buffer: Buffer, position: int, end: int, version: int) -> FetchRequest:
    flexible = version >= _FLEXIBLE
    if version >= _TAGGED_REPLICA:
        position -= _REPLICA_BYTES  # the first field of `_HEAD` is missing
    _, max_wait, min_bytes, max_bytes, isolation = _HEAD.unpack_from(buffer, position)
    position += _HEAD.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(buffer, position)
        position += 8
    wanted: list[FetchPartition] = []
    topics, position = _read_count(buffer, position, flexible)
    check_count("topics", topics)
    for _ in range(topics):
        topic, position = _read_topic(buffer, position, version)
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
        max_wait,
        min_bytes,
        max_bytes,
        session_id,
        session_epoch,
        tuple(wanted),
        isolation == READ_COMMITTED,
    )  # the rest, forgotten topics and rack, belongs to sessions and replicas


def _read_partition(
    buffer: Buffer, position: int, version: int, topic: str | bytes
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


def _read_topic(buffer: Buffer, position: int, version: int) -> tuple[str | bytes, int]:
    if version >= _TOPIC_IDS:
        end = position + _ID_BYTES
        topic_id = bytes(buffer[position:end])
        if len(topic_id) < _ID_BYTES:
            raise MalformedError("a topic's id runs over the request")
        return topic_id, end
    if version >= _FLEXIBLE:
        size, position = read_unsigned(buffer, position)
        size -= 1
    else:
        (size,) = _SHORT.unpack_from(buffer, position)
        position += 2
    if size < 0:
        raise MalformedError("a topic's name is null")
    return str(buffer[position : position + size], "utf-8", "replace"), position + size


def encode_reply(
    correlation: int, version: int, reads: Sequence[PartitionData], error: int = 0
) -> list[Piece]:
    """Return the reply frame as pieces. The session id is 0: sessions are declined."""
    flexible = version >= _FLEXIBLE
    topics: dict[str | bytes, list[PartitionData]] = {}
    for read in reads:
        topics.setdefault(read.topic, []).append(read)
    pieces: list[Piece] = []
    size = 0  # bytes of the pieces
    out = bytearray(b"\0" if flexible else b"")
    out += b"\0\0\0\0"  # throttle time
    if version >= 7:
        out += struct.pack(">hi", error, 0)
    out += _count(len(topics), flexible)
    for topic, group in topics.items():
        if isinstance(topic, bytes):
            out += topic
        else:
            name = topic.encode()
            out += (write_unsigned(len(name) + 1) if flexible else _SHORT.pack(len(name))) + name
        out += _count(len(group), flexible)
        for read in group:
            _encode_head(out, read, version)
            records = read.slice
            if records is not None and records.size:
                pieces += (bytes(out), records)
                size += len(out) + records.size
                out.clear()
            if flexible:
                out += b"\0"
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    if out:
        pieces.append(bytes(out))
        size += len(out)
    first = pieces[0]
    assert isinstance(first, bytes)
    pieces[0] = _REPLY.pack(4 + size, correlation) + first
    return pieces


def _encode_head(out: bytearray, read: PartitionData, version: int) -> None:
    """Encode the fields of a partition before its records, with their length."""
    flexible = version >= _FLEXIBLE
    stable = read.high_watermark if read.last_stable is None else read.last_stable
    out += _RESULT.pack(read.partition, read.error, read.high_watermark, stable)
    if version >= 5:
        out += _LONG.pack(read.log_start)
    if read.aborted:
        out += _count(len(read.aborted), flexible)
        for aborted in read.aborted:
            out += _ABORTED.pack(*aborted) + (b"\0" if flexible else b"")
    else:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"  # null
    if version >= 11:
        out += b"\xff\xff\xff\xff"  # preferred replica: none
    size = read.slice.size if read.slice is not None else 0
    out += write_unsigned(size + 1) if flexible else _INT.pack(size)


def _count(count: int, flexible: bool) -> bytes:
    return write_unsigned(count + 1) if flexible else _INT.pack(count)
