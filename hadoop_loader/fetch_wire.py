"""The three requests that reading a log needs, as bytes, and their replies: no sockets here.

ApiVersions 0, Metadata 4 and Fetch 4: versions that Kafka has answered since 0.11 and still does,
and that this project's broker answers.

Rules: what a reply claims is checked against the bytes there are (struct.error otherwise); record
batches stay where they are in the reply.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = [
    "API_VERSIONS",
    "FETCH",
    "METADATA",
    "Fetched",
    "Leader",
    "fetch_reply",
    "fetch_request",
    "leaders",
    "request",
    "topic_request",
    "versions",
]

API_VERSIONS, METADATA, FETCH = (18, 0), (3, 4), (1, 4)
_CLIENT = b"headworks-loader"
_HEADER = struct.Struct(">ihhih")
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_VERSIONS = struct.Struct(">hhh")
_FETCH = struct.Struct(">iiiibi")
_WANTED = struct.Struct(">iqi")
_PARTITION = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_READ_COMMITTED = 1


class Leader(NamedTuple):
    """Where a partition is read: error of the metadata, host and port (None: not known)."""

    error: int
    address: tuple[str, int] | None


class Fetched(NamedTuple):
    """What a partition answered; `aborted` are (producer, first offset), `records` batches."""

    partition: int
    error: int
    end: int
    aborted: tuple[tuple[int, int], ...]
    records: memoryview


def request(api: tuple[int, int], correlation: int, body: bytes = b"") -> bytes:
    """A request frame."""
    key, version = api
    head = _HEADER.pack(10 + len(_CLIENT) + len(body), key, version, correlation, len(_CLIENT))
    return head + _CLIENT + body


def topic_request(topic: str) -> bytes:
    """Body of the question for one topic's leaders, which must not create the topic."""
    return _INT.pack(1) + _text(topic) + b"\0"


def fetch_request(
    topic: str, wanted: Iterable[tuple[int, int]], *, wait_ms: int, most: int, each: int
) -> bytes:
    """Body of a fetch of (partition, offset)s: at most `most` bytes, `each` of a partition."""
    rows = [_WANTED.pack(partition, offset, each) for partition, offset in wanted]
    head = _FETCH.pack(-1, wait_ms, 1, most, _READ_COMMITTED, 1)
    return head + _text(topic) + _INT.pack(len(rows)) + b"".join(rows)


def versions(reply: memoryview) -> dict[int, tuple[int, int]]:
    """Least and greatest version of each API that the broker answers; empty if it refuses."""
    (error,) = _SHORT.unpack_from(reply)
    if error:
        return {}
    (count,) = _INT.unpack_from(reply, 2)
    rows = (_VERSIONS.unpack_from(reply, 6 + 6 * i) for i in range(count))
    return {key: (low, high) for key, low, high in rows}


def leaders(reply: memoryview) -> tuple[int, Mapping[int, Leader]]:
    """Error of the topic, and the leader of each of its partitions."""
    (count,) = _INT.unpack_from(reply, 4)  # behind the throttle time
    at = 8
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(count):
        (node,) = _INT.unpack_from(reply, at)
        host, at = _read_text(reply, at + 4)
        (port,) = _INT.unpack_from(reply, at)
        _, at = _read_text(reply, at + 4)  # the rack
        brokers[node] = (host, port)
    _, at = _read_text(reply, at)  # the cluster
    at += 4 + 4  # the controller, and the number of topics: one was asked for
    (error,) = _SHORT.unpack_from(reply, at)
    _, at = _read_text(reply, at + 2)
    (count,) = _INT.unpack_from(reply, at + 1)
    at += 5
    found: dict[int, Leader] = {}
    for _ in range(count):
        wrong, partition, node = struct.unpack_from(">hii", reply, at)
        at += 10
        for _ in range(2):  # replicas, and those in sync
            (replicas,) = _INT.unpack_from(reply, at)
            at += 4 + 4 * replicas
        found[partition] = Leader(wrong, brokers.get(node))
    return error, found


def fetch_reply(reply: memoryview) -> list[Fetched]:
    """What each partition answered."""
    (topics,) = _INT.unpack_from(reply, 4)
    at = 8
    found: list[Fetched] = []
    for _ in range(topics):
        _, at = _read_text(reply, at)
        (partitions,) = _INT.unpack_from(reply, at)
        at += 4
        for _ in range(partitions):
            partition, error, _high, end = _PARTITION.unpack_from(reply, at)
            at += _PARTITION.size
            (count,) = _INT.unpack_from(reply, at)
            at += 4
            count = max(count, 0)
            aborted = tuple(_ABORTED.unpack_from(reply, at + 16 * i) for i in range(count))
            at += 16 * count
            (size,) = _INT.unpack_from(reply, at)
            at += 4
            size = max(size, 0)
            if size > len(reply) - at:
                raise struct.error("the records run over the reply")
            found.append(Fetched(partition, error, end, aborted, reply[at : at + size]))
            at += size
    return found


def _text(value: str) -> bytes:
    raw = value.encode()
    return _SHORT.pack(len(raw)) + raw


def _read_text(reply: memoryview, at: int) -> tuple[str, int]:
    (size,) = _SHORT.unpack_from(reply, at)
    at += 2
    if size < 0:
        return "", at
    if size > len(reply) - at:
        raise struct.error("a text runs over the reply")
    return str(reply[at : at + size], "utf-8"), at + size
