"""The three requests that reading a log needs, as bytes, and their responses: no sockets here.

ApiVersions 0, Metadata 4, and Fetch 4: Kafka has answered these versions since 0.11 and still does,
and this project's broker answers them.

Rules: each length in a response is checked against the bytes there are (struct.error otherwise).
Record batches are not copied out of the response.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey

API_VERSIONS = (ApiKey.API_VERSIONS, 0)
METADATA = (ApiKey.METADATA, 4)
FETCH = (ApiKey.FETCH, 4)
# Errors after which the partition may have another leader: ask for metadata again.
STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
_CLIENT = b"headworks-loader"
_HEADER = struct.Struct(">ihhih")
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_VERSIONS = struct.Struct(">hhh")
_FETCH = struct.Struct(">iiiibi")
_PARTITION_REQUEST = struct.Struct(">iqi")
_PARTITION_METADATA = struct.Struct(">hii")
_PARTITION_RESPONSE = struct.Struct(">ihqq")
_ABORTED_TRANSACTION = struct.Struct(">qq")
_READ_COMMITTED = 1


class PartitionLeader(NamedTuple):
    """Where a partition is read: error of the metadata, host and port (None: unknown)."""

    error: int
    address: tuple[str, int] | None


class FetchedPartition(NamedTuple):
    """One partition of a fetch response."""

    topic: str
    partition: int
    error: int
    end: int  # last stable offset
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset) of each transaction
    records: memoryview  # record batches


def error_name(error: int) -> str:
    """Return the name of an error code of the protocol."""
    return ErrorCode(error).name if error in ErrorCode.__members__.values() else f"error {error}"


def request_frame(api: tuple[int, int], correlation: int, body: bytes = b"") -> bytes:
    """Return a request with its length and header."""
    key, version = api
    head = _HEADER.pack(10 + len(_CLIENT) + len(body), key, version, correlation, len(_CLIENT))
    return head + _CLIENT + body


def metadata_request(topics: Sequence[str]) -> bytes:
    """Return the body of a metadata request, which must not create the topics."""
    return _INT.pack(len(topics)) + b"".join(map(_text, topics)) + b"\0"


def fetch_request(
    wanted: Iterable[tuple[str, int, int]],
    *,
    wait_ms: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> bytes:
    """Return the body of a fetch of (topic, partition, offset)s.

    Partitions are served in the order of `wanted`, except that those of a topic stay together.
    """
    topics: dict[str, list[bytes]] = {}
    for topic, partition, offset in wanted:
        topics.setdefault(topic, []).append(
            _PARTITION_REQUEST.pack(partition, offset, partition_max_bytes)
        )
    head = _FETCH.pack(-1, wait_ms, 1, max_bytes, _READ_COMMITTED, len(topics))
    return head + b"".join(
        _text(topic) + _INT.pack(len(rows)) + b"".join(rows) for topic, rows in topics.items()
    )


def parse_api_versions_response(response: memoryview) -> dict[int, tuple[int, int]]:
    """Return the least and greatest version of each API; empty if the broker refuses."""
    (error,) = _SHORT.unpack_from(response)
    if error:
        return {}
    (count,) = _INT.unpack_from(response, 2)
    rows = (_VERSIONS.unpack_from(response, 6 + 6 * i) for i in range(count))
    return {key: (low, high) for key, low, high in rows}


def parse_metadata_response(
    response: memoryview,
) -> dict[str, tuple[int, Mapping[int, PartitionLeader]]]:
    """Return the error of each topic, and the leader of each of its partitions."""
    (count,) = _INT.unpack_from(response, 4)  # after the throttle time
    at = 8
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(count):
        (node,) = _INT.unpack_from(response, at)
        host, at = _read_text(response, at + 4)
        (port,) = _INT.unpack_from(response, at)
        _, at = _read_text(response, at + 4)  # the rack
        brokers[node] = (host, port)
    _, at = _read_text(response, at)  # the cluster
    (count,) = _INT.unpack_from(response, at + 4)  # after the controller
    at += 8
    topics: dict[str, tuple[int, Mapping[int, PartitionLeader]]] = {}
    for _ in range(count):
        (error,) = _SHORT.unpack_from(response, at)
        topic, at = _read_text(response, at + 2)
        partitions, at = _read_partitions(response, at + 1, brokers)
        topics[topic] = (error, partitions)
    return topics


def _read_partitions(
    response: memoryview, at: int, brokers: Mapping[int, tuple[str, int]]
) -> tuple[dict[int, PartitionLeader], int]:
    (count,) = _INT.unpack_from(response, at)
    at += 4
    found: dict[int, PartitionLeader] = {}
    for _ in range(count):
        wrong, partition, node = _PARTITION_METADATA.unpack_from(response, at)
        at += _PARTITION_METADATA.size
        for _ in range(2):  # replicas, and in-sync replicas
            (replicas,) = _INT.unpack_from(response, at)
            at += 4 + 4 * replicas
        found[partition] = PartitionLeader(wrong, brokers.get(node))
    return found, at


def parse_fetch_response(response: memoryview) -> list[FetchedPartition]:
    """Return each partition of a fetch response."""
    (topics,) = _INT.unpack_from(response, 4)
    at = 8
    found: list[FetchedPartition] = []
    for _ in range(topics):
        topic, at = _read_text(response, at)
        (partitions,) = _INT.unpack_from(response, at)
        at += 4
        for _ in range(partitions):
            partition, error, _high, end = _PARTITION_RESPONSE.unpack_from(response, at)
            at += _PARTITION_RESPONSE.size
            (count,) = _INT.unpack_from(response, at)
            at += 4
            count = max(count, 0)
            aborted = tuple(
                _ABORTED_TRANSACTION.unpack_from(response, at + 16 * i) for i in range(count)
            )
            at += 16 * count
            (size,) = _INT.unpack_from(response, at)
            at += 4
            size = max(size, 0)
            if size > len(response) - at:
                raise struct.error("the records run over the reply")
            records = response[at : at + size]
            found.append(FetchedPartition(topic, partition, error, end, aborted, records))
            at += size
    return found


def _text(value: str) -> bytes:
    raw = value.encode()
    return _SHORT.pack(len(raw)) + raw


def _read_text(response: memoryview, at: int) -> tuple[str, int]:
    (size,) = _SHORT.unpack_from(response, at)
    at += 2
    if size < 0:
        return "", at
    if size > len(response) - at:
        raise struct.error("a text runs over the reply")
    return str(response[at : at + size], "utf-8"), at + size
