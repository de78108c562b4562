"""The three requests that reading a log needs, as bytes, and their replies: no sockets here.

ApiVersions 0, Metadata 4 and Fetch 4: versions that Kafka has answered since 0.11 and still does,
and that this project's broker answers.

Rules: what a reply claims is checked against the bytes there are (struct.error otherwise); record
batches stay where they are in the reply.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headworks._kafka.protocol.apis import ApiKey

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
    "topics_request",
    "versions",
]

API_VERSIONS = (ApiKey.API_VERSIONS, 0)
METADATA = (ApiKey.METADATA, 4)
FETCH = (ApiKey.FETCH, 4)
_CLIENT = b"headworks-loader"
_HEADER = struct.Struct(">ihhih")
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_VERSIONS = struct.Struct(">hhh")
_FETCH = struct.Struct(">iiiibi")
_WANTED = struct.Struct(">iqi")
_LEADER = struct.Struct(">hii")
_PARTITION = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_READ_COMMITTED = 1


class Leader(NamedTuple):
    """Where a partition is read: error of the metadata, host and port (None: not known)."""

    error: int
    address: tuple[str, int] | None


class Fetched(NamedTuple):
    """What a partition answered; `aborted` are (producer, first offset), `records` batches."""

    topic: str
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


def topics_request(topics: Sequence[str]) -> bytes:
    """Body of the question for topics' leaders, which must not create the topics."""
    return _INT.pack(len(topics)) + b"".join(map(_text, topics)) + b"\0"


def fetch_request(
    wanted: Iterable[tuple[str, int, int]], *, wait_ms: int, most: int, each: int
) -> bytes:
    """Body of a fetch of (topic, partition, offset)s: at most `most` bytes, `each` of a partition.

    What is wanted first is served first, but for a topic's partitions, which stay together.
    """
    topics: dict[str, list[bytes]] = {}
    for topic, partition, offset in wanted:
        topics.setdefault(topic, []).append(_WANTED.pack(partition, offset, each))
    head = _FETCH.pack(-1, wait_ms, 1, most, _READ_COMMITTED, len(topics))
    return head + b"".join(
        _text(topic) + _INT.pack(len(rows)) + b"".join(rows) for topic, rows in topics.items()
    )


def versions(reply: memoryview) -> dict[int, tuple[int, int]]:
    """Least and greatest version of each API that the broker answers; empty if it refuses."""
    (error,) = _SHORT.unpack_from(reply)
    if error:
        return {}
    (count,) = _INT.unpack_from(reply, 2)
    rows = (_VERSIONS.unpack_from(reply, 6 + 6 * i) for i in range(count))
    return {key: (low, high) for key, low, high in rows}


def leaders(reply: memoryview) -> dict[str, tuple[int, Mapping[int, Leader]]]:
    """Error of each topic, and the leader of each of its partitions."""
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
    (count,) = _INT.unpack_from(reply, at + 4)  # behind the controller
    at += 8
    topics: dict[str, tuple[int, Mapping[int, Leader]]] = {}
    for _ in range(count):
        (error,) = _SHORT.unpack_from(reply, at)
        topic, at = _read_text(reply, at + 2)
        partitions, at = _read_partitions(reply, at + 1, brokers)
        topics[topic] = (error, partitions)
    return topics


def _read_partitions(
    reply: memoryview, at: int, brokers: Mapping[int, tuple[str, int]]
) -> tuple[dict[int, Leader], int]:
    (count,) = _INT.unpack_from(reply, at)
    at += 4
    found: dict[int, Leader] = {}
    for _ in range(count):
        wrong, partition, node = _LEADER.unpack_from(reply, at)
        at += _LEADER.size
        for _ in range(2):  # replicas, and those in sync
            (replicas,) = _INT.unpack_from(reply, at)
            at += 4 + 4 * replicas
        found[partition] = Leader(wrong, brokers.get(node))
    return found, at


def fetch_reply(reply: memoryview) -> list[Fetched]:
    """What each partition answered."""
    (topics,) = _INT.unpack_from(reply, 4)
    at = 8
    found: list[Fetched] = []
    for _ in range(topics):
        topic, at = _read_text(reply, at)
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
            records = reply[at : at + size]
            found.append(Fetched(topic, partition, error, end, aborted, records))
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
