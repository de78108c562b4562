"""Produce requests and replies, by hand: the records are not copied.

Request body (v3-8; from v9 with compact lengths and tagged fields):
`transactional id, acks, timeout, [topic, [partition, records]]`. Versions 0-2, without the first,
are parsed only so that they can be refused in their own layout.

Rule: a parsed request only points into the receive buffer; it must be used before that moves.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from broker.protocol.frame import MalformedError, skip_tags
from broker.records.batch import Buffer
from broker.records.varint import read_unsigned, write_unsigned

__all__ = ["Part", "ProduceRequest", "Result", "encode_reply", "parse_request"]

_FLEXIBLE = 9
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_PART = struct.Struct(">ii")
_REPLY = struct.Struct(">ii")
_RESULT = struct.Struct(">ihq")
_LONG = struct.Struct(">q")


class Part(NamedTuple):
    """Records for one partition: where they lie in the buffer (-1, -1: null)."""

    topic: str
    partition: int
    start: int
    stop: int


class ProduceRequest(NamedTuple):
    """A produce request whose records lie in the receive buffer."""

    transactional_id: str | None
    acks: int
    parts: list[Part]


class Result(NamedTuple):
    """What became of one part."""

    topic: str
    partition: int
    error: int
    base_offset: int = -1
    append_time: int = -1
    log_start: int = -1
    message: str | None = None


def parse_request(buffer: Buffer, position: int, end: int, version: int) -> ProduceRequest:
    """Parse the body that lies at `position`..`end` of the receive buffer."""
    try:
        if version >= _FLEXIBLE:
            request, position = _parse_flexible(buffer, position, end)
        else:
            request, position = _parse_plain(buffer, position, end, version)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise MalformedError(f"produce v{version} does not parse: {error}") from None
    if position > end:
        raise MalformedError(f"produce v{version} runs over the request")
    return request


def _parse_plain(
    buffer: Buffer, position: int, end: int, version: int
) -> tuple[ProduceRequest, int]:
    transactional_id = None
    if version >= 3:
        (size,) = _SHORT.unpack_from(buffer, position)
        position += 2
        if size >= 0:
            transactional_id = str(buffer[position : position + size], "utf-8")
            position += size
    acks, _ = _ACKS_TIMEOUT.unpack_from(buffer, position)
    (topics,) = _INT.unpack_from(buffer, position + 6)
    position += 10
    parts = []
    for _ in range(topics):
        (size,) = _SHORT.unpack_from(buffer, position)
        position += 2
        if size < 0:
            raise MalformedError("a topic's name is null")
        topic = str(buffer[position : position + size], "utf-8")
        position += size
        (partitions,) = _INT.unpack_from(buffer, position)
        position += 4
        for _ in range(partitions):
            partition, size = _PART.unpack_from(buffer, position)
            position += 8
            if size < 0:
                parts.append(Part(topic, partition, -1, -1))
                continue
            parts.append(Part(topic, partition, position, position + size))
            position += size
            if position > end:
                raise MalformedError("records run over the request")
    return ProduceRequest(transactional_id, acks, parts), position


def _parse_flexible(buffer: Buffer, position: int, end: int) -> tuple[ProduceRequest, int]:
    transactional_id = None
    size, position = read_unsigned(buffer, position)
    if size:
        transactional_id = str(buffer[position : position + size - 1], "utf-8")
        position += size - 1
    acks, _ = _ACKS_TIMEOUT.unpack_from(buffer, position)
    topics, position = read_unsigned(buffer, position + 6)
    parts = []
    for _ in range(topics - 1):
        size, position = read_unsigned(buffer, position)
        if not size:
            raise MalformedError("a topic's name is null")
        topic = str(buffer[position : position + size - 1], "utf-8")
        position += size - 1
        partitions, position = read_unsigned(buffer, position)
        for _ in range(partitions - 1):
            (partition,) = _INT.unpack_from(buffer, position)
            size, position = read_unsigned(buffer, position + 4)
            if not size:
                parts.append(Part(topic, partition, -1, -1))
            else:
                parts.append(Part(topic, partition, position, position + size - 1))
                position += size - 1
                if position > end:
                    raise MalformedError("records run over the request")
            position = skip_tags(buffer, position)
        position = skip_tags(buffer, position)
    return ProduceRequest(transactional_id, acks, parts), skip_tags(buffer, position)


def encode_reply(correlation: int, version: int, results: Sequence[Result]) -> bytes:
    """The reply frame."""
    flexible = version >= _FLEXIBLE
    topics = _by_topic(results)
    out = [b"\0", _count(len(topics), flexible)] if flexible else [_count(len(topics), flexible)]
    for topic, group in topics.items():
        out += (_text(topic, flexible), _count(len(group), flexible))
        for result in group:
            out.append(_RESULT.pack(result.partition, result.error, result.base_offset))
            if version >= 2:
                out.append(_LONG.pack(result.append_time))
            if version >= 5:
                out.append(_LONG.pack(result.log_start))
            if version >= 8:
                out += (_count(0, flexible), _text(result.message, flexible))
            if flexible:
                out.append(b"\0")
        if flexible:
            out.append(b"\0")
    if version >= 1:
        out.append(b"\0\0\0\0\0" if flexible else b"\0\0\0\0")  # throttle time, tags
    body = b"".join(out)
    return _REPLY.pack(4 + len(body), correlation) + body


def _by_topic(results: Sequence[Result]) -> dict[str, Sequence[Result]]:
    if len(results) == 1:
        return {results[0].topic: results}
    topics: dict[str, list[Result]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    return dict(topics)


@lru_cache(1024)
def _count(count: int, flexible: bool) -> bytes:
    return write_unsigned(count + 1) if flexible else _INT.pack(count)


@lru_cache(4096)
def _text(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    data = text.encode()
    return (write_unsigned(len(data) + 1) if flexible else _SHORT.pack(len(data))) + data
