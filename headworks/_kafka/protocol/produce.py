"""Produce requests and replies, parsed and encoded by hand: the records are not copied.

Request body (v3-8; from v9 with compact lengths and tagged fields):
`transactional id, acks, timeout, [topic, [partition, records]]`. Versions 0-2 lack the
transactional id. They are parsed only to be rejected in their own layout. From v13 on, a topic is
named by the 16 bytes of its id.

The requests of one client usually differ only in correlation id and records. `ProduceTemplate`
recognizes such requests without parsing them, and replies that only carry an offset are built from
a prepared frame. With one message per request, this is most of the broker's work.

Rule: a parsed request only points into the receive buffer. Use it before the buffer moves.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from headworks._kafka.protocol.frame import MalformedError, RequestHeader, check_count, skip_tags
from headworks._kafka.records.batch import Buffer
from headworks._kafka.records.varint import read_unsigned, write_unsigned

# A request that matches the last one: its correlation id, its partition, where its records start
# and stop, and where the next request begins.
MatchedRequest = tuple[int, int, int, int, int]

_FLEXIBLE = 9
_TOPIC_IDS = 13
_ID_BYTES = 16
_UNIFORM_FROM = 5  # versions from here on have the same fields before the offset
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_PART = struct.Struct(">ii")
_REPLY = struct.Struct(">ii")
_RESULT = struct.Struct(">ihq")
_LONG = struct.Struct(">q")
_HEAD = struct.Struct(">iii")  # length, key and version, correlation id
_PREAMBLE = 8  # key and version, correlation id
_NEVER = -1  # as key and version
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request


class PartitionRecords(NamedTuple):
    """The records for one partition: where they lie in the buffer (-1, -1: null).

    `topic` is a name, or from version 13 on the bytes of an id.
    """

    topic: str | bytes
    partition: int
    start: int
    stop: int


class ProduceRequest(NamedTuple):
    """A produce request whose records lie in the receive buffer."""

    transactional_id: str | None
    acks: int
    partitions: list[PartitionRecords]


class ProduceResult(NamedTuple):
    """The result for one partition; `topic` as in the request."""

    topic: str | bytes
    partition: int
    error: int
    base_offset: int = -1
    append_time: int = -1
    log_start: int = -1
    message: str | None = None
    records: tuple[tuple[int, str], ...] = ()  # number in the batch, and the error


def parse_request(buffer: Buffer, position: int, end: int, version: int) -> ProduceRequest:
    """Parse the body at `position`..`end` of the buffer. MalformedError if it does not fit."""
    try:
        if version >= _FLEXIBLE:
            request, position = _parse_flexible(buffer, position, end, version)
        else:
            request, position = _parse_plain(buffer, position, end, version)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise MalformedError(f"produce v{version} does not parse: {error}") from None
    if position > end:
        raise MalformedError(f"produce v{version} runs over the request")
    return request


class ProduceTemplate:
    """The last produce request of a connection, if it had one partition, to match the next ones.

    Matching requests have the same `version`, `topic`, and `acks`. They may differ in correlation
    id, partition, and records.
    """

    __slots__ = ("_flexible", "_kind", "_same", "acks", "topic", "version")

    def __init__(self) -> None:
        self._kind, self._same, self._flexible = _NEVER, b"", False
        self.version, self.acks = 0, 0
        self.topic: str | bytes = ""

    def learn(self, buffer: bytearray, header: RequestHeader, request: ProduceRequest) -> None:
        """Remember a parsed request: the bytes between its correlation id and its partition."""
        position = header.start
        part = request.partitions[0] if len(request.partitions) == 1 else None
        if part is None or part.stop <= part.start or request.transactional_id is not None:
            self._kind = _NEVER
            return
        self._flexible = header.version >= _FLEXIBLE
        size = part.stop - part.start
        length = write_unsigned(size + 1) if self._flexible else _INT.pack(size)
        (self._kind,) = _INT.unpack_from(buffer, position)
        self._same = bytes(buffer[position + _PREAMBLE : part.start - len(length) - _INT.size])
        self.version, self.topic, self.acks = header.version, part.topic, request.acks

    def matches(
        self, buffer: bytearray, position: int, end: int, max_bytes: int
    ) -> Iterator[MatchedRequest]:
        """Yield the requests from `position`, of a length field, that match the last one.

        Stop before a request that does not match, is not whole, or is larger than `max_bytes`: it
        must be parsed.
        """
        kind, same, flexible = self._kind, self._same, self._flexible
        head, part, is_same = _HEAD.unpack_from, _PART.unpack_from, buffer.startswith
        to_part = _HEAD.size + len(same)
        last = end - to_part - _PART.size
        while position <= last:
            size, found, correlation = head(buffer, position)
            stop = after = position + 4 + size
            if found != kind or after > end or size > max_bytes or not is_same(same, position + 12):
                return
            at = position + to_part
            if flexible:
                (index,) = _INT.unpack_from(buffer, at)
                try:
                    length, start = read_unsigned(buffer, at + _INT.size)
                except (IndexError, ValueError):  # parsing will say what is wrong
                    return
                length, stop = length - 1, after - len(_NO_TAGS)
                if buffer[stop:after] != _NO_TAGS:
                    return
            else:
                index, length = part(buffer, at)
                start = at + 8
            if length <= 0 or start + length != stop:
                return
            yield correlation, index, start, stop, after
            position = after


def _parse_plain(
    buffer: Buffer, position: int, end: int, version: int
) -> tuple[ProduceRequest, int]:
    transactional_id = None
    if version >= 3:
        (size,) = _SHORT.unpack_from(buffer, position)
        position += 2
        if size >= 0:
            transactional_id = str(buffer[position : position + size], "utf-8", "replace")
            position += size
    acks, _ = _ACKS_TIMEOUT.unpack_from(buffer, position)
    (topics,) = _INT.unpack_from(buffer, position + 6)
    check_count("topics", topics)
    position += 10
    parts: list[PartitionRecords] = []
    for _ in range(topics):
        (size,) = _SHORT.unpack_from(buffer, position)
        position += 2
        if size < 0:
            raise MalformedError("a topic's name is null")
        topic = str(buffer[position : position + size], "utf-8", "replace")
        position += size
        (partitions,) = _INT.unpack_from(buffer, position)
        check_count("partitions", len(parts) + partitions)
        position += 4
        for _ in range(partitions):
            partition, size = _PART.unpack_from(buffer, position)
            position += 8
            if size < 0:
                parts.append(PartitionRecords(topic, partition, -1, -1))
                continue
            parts.append(PartitionRecords(topic, partition, position, position + size))
            position += size
            if position > end:
                raise MalformedError("records run over the request")
    return ProduceRequest(transactional_id, acks, parts), position


def _parse_flexible(
    buffer: Buffer, position: int, end: int, version: int
) -> tuple[ProduceRequest, int]:
    transactional_id = None
    size, position = read_unsigned(buffer, position)
    if size:
        transactional_id = str(buffer[position : position + size - 1], "utf-8", "replace")
        position += size - 1
    acks, _ = _ACKS_TIMEOUT.unpack_from(buffer, position)
    topics, position = read_unsigned(buffer, position + 6)
    check_count("topics", topics - 1)
    parts: list[PartitionRecords] = []
    for _ in range(topics - 1):
        topic: str | bytes
        if version >= _TOPIC_IDS:
            topic = bytes(buffer[position : position + _ID_BYTES])
            position += _ID_BYTES
        else:
            size, position = read_unsigned(buffer, position)
            if not size:
                raise MalformedError("a topic's name is null")
            topic = str(buffer[position : position + size - 1], "utf-8", "replace")
            position += size - 1
        partitions, position = read_unsigned(buffer, position)
        check_count("partitions", len(parts) + partitions - 1)
        for _ in range(partitions - 1):
            (partition,) = _INT.unpack_from(buffer, position)
            size, position = read_unsigned(buffer, position + 4)
            if not size:
                parts.append(PartitionRecords(topic, partition, -1, -1))
            else:
                parts.append(PartitionRecords(topic, partition, position, position + size - 1))
                position += size - 1
                if position > end:
                    raise MalformedError("records run over the request")
            position = skip_tags(buffer, position)
        position = skip_tags(buffer, position)
    return ProduceRequest(transactional_id, acks, parts), skip_tags(buffer, position)


def encode_reply(correlation: int, version: int, results: Sequence[ProduceResult]) -> bytes:
    """Return the reply frame."""
    if len(results) == 1 and version >= _UNIFORM_FROM:
        topic, index, error, base, append_time, log_start, message, records = results[0]
        if not error and message is None and not records:
            pack, size, before, after = _around(topic, version)
            return pack(size, correlation, before, index, 0, base, append_time, log_start, after)
    flexible = version >= _FLEXIBLE
    topics = _by_topic(results)
    out = [b"\0", _count(len(topics), flexible)] if flexible else [_count(len(topics), flexible)]
    for topic, group in topics.items():
        out += (_topic(topic, flexible), _count(len(group), flexible))
        for result in group:
            out.append(_RESULT.pack(result.partition, result.error, result.base_offset))
            if version >= 2:
                out.append(_LONG.pack(result.append_time))
            if version >= 5:
                out.append(_LONG.pack(result.log_start))
            if version >= 8:
                out.append(_count(len(result.records), flexible))
                out += [_record_error(*record, flexible) for record in result.records]
                out.append(_text(result.message, flexible))
            if flexible:
                out.append(b"\0")
        if flexible:
            out.append(b"\0")
    if version >= 1:
        out.append(b"\0\0\0\0\0" if flexible else b"\0\0\0\0")  # throttle time, tags
    body = b"".join(out)
    return _REPLY.pack(4 + len(body), correlation) + body


def encode_offset_replies(
    version: int,
    topic: str | bytes,
    index: int,
    log_start: int,
    placed: Iterable[tuple[int, int]],
) -> bytes:
    """Return frames that only carry an offset; `placed`: correlation id and base offset of each."""
    if version < _UNIFORM_FROM:
        return b"".join(
            encode_reply(correlation, version, [ProduceResult(topic, index, 0, base)])
            for correlation, base in placed
        )
    pack, size, before, after = _around(topic, version)
    return b"".join(
        [
            pack(size, correlation, before, index, 0, base, -1, log_start, after)
            for correlation, base in placed
        ]
    )


@lru_cache(4096)
def _around(topic: str | bytes, version: int) -> tuple[Callable[..., bytes], int, bytes, bytes]:
    """Return how to pack a reply with one offset: packer, length, bytes before and after."""
    flexible = version >= _FLEXIBLE
    one, tags = _count(1, flexible), b"\0" if flexible else b""
    before = tags + one + _topic(topic, flexible) + one
    nothing = _count(0, flexible) + _text(None, flexible) if version >= 8 else b""
    after = nothing + 2 * tags + b"\0\0\0\0" + tags
    layout = struct.Struct(f">ii{len(before)}sihqqq{len(after)}s")
    return layout.pack, layout.size - _INT.size, before, after


def _by_topic(results: Sequence[ProduceResult]) -> dict[str | bytes, Sequence[ProduceResult]]:
    if len(results) == 1:
        return {results[0].topic: results}
    topics: dict[str | bytes, list[ProduceResult]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    return dict(topics)


def _record_error(number: int, message: str, flexible: bool) -> bytes:
    return _INT.pack(number) + _text(message, flexible) + (b"\0" if flexible else b"")


@lru_cache(1024)
def _count(count: int, flexible: bool) -> bytes:
    return write_unsigned(count + 1) if flexible else _INT.pack(count)


def _topic(topic: str | bytes, flexible: bool) -> bytes:
    return topic if isinstance(topic, bytes) else _text(topic, flexible)


def _text(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    data = text.encode()
    return (write_unsigned(len(data) + 1) if flexible else _SHORT.pack(len(data))) + data
