"""Reading a log without an object per message: plain sockets, and batches decoded in place.

Rules:

- It promises the same as KafkaFetcher. It yields every message of the ranges, once, in order by
  partition. It commits and resets no offset. A silent broker ends the fetch with an error.
- librdkafka reads on from the current offset if this client lacks a feature: TLS, logins, brokers
  before Kafka 0.11, and logs that still hold their formats.
- Each broker has one request in flight, sent before the previous response is decoded. The broker
  and this process work at the same time, and two responses are all the memory needed.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from hadoop_loader._fetch import requests
from hadoop_loader._fetch.batches import PartitionBatch, data_batches, decode_batches
from hadoop_loader._fetch.kafka_log import (
    NO_BROKER_FIX,
    KafkaFetcher,
    silent_broker_error,
    unreachable_error,
)
from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns
from hadoop_loader._fetch.ranges import FetchRange, consumer_assignments, retention_gap_error
from hadoop_loader._jit.backend import PROCESS_SELECTOR, BackendSelector
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.records import InvalidBatchError
from headworks.errors import CorruptError, UnreachableError

__all__ = ["BrokerFetcher"]

Address = tuple[str, int]
_TopicPartition = tuple[str, int]
_Remaining = dict[_TopicPartition, tuple[int, int]]  # offsets still to be read: (next, end)
_Parsed = TypeVar("_Parsed")

_MAX_FETCH_BYTES = 8 << 20
_MAX_PARTITION_BYTES = 4 << 20
_MAX_RESPONSE_BYTES = 1 << 30
_MAX_WAIT_MS = 500
_RETRY_SECONDS = 0.2
_RESPONSE_HEADER = struct.Struct(">ii")
# The partition may have another leader now: ask for metadata again
_STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class _UnsupportedBrokerError(Exception):
    """The broker or its log needs a feature that librdkafka has and this client lacks."""


class _ConnectionLostError(UnreachableError):
    """A connection could not be made, or it broke."""


class BrokerFetcher:
    """Fetches the ranges of a task from Kafka-protocol brokers.

    `client` are properties of librdkafka; a request asks for `partition_max_bytes` per partition.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        timeout: float = 30.0,
        backend: BackendSelector = PROCESS_SELECTOR,
        partition_max_bytes: int = _MAX_PARTITION_BYTES,
    ) -> None:
        self._client = client  # properties of librdkafka
        self._bootstrap: str = client["bootstrap.servers"]
        self._timeout = timeout  # seconds without data until the fetch fails
        self._backend = backend  # decides whether records are found by compiled code
        self._partition_max_bytes = partition_max_bytes  # asked of each partition in a request
        self._connections: dict[Address, _BrokerConnection] = {}  # open, by address of the broker
        # Whether librdkafka reads everything.
        self._unsupported = client.get("security.protocol", "plaintext").lower() != "plaintext"

    def __enter__(self) -> BrokerFetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections = {}

    def fetch(self, ranges: Sequence[FetchRange]) -> Iterator[tuple[str, Sequence[FetchedMessage]]]:
        """See Fetcher.fetch."""
        for group in consumer_assignments(ranges):
            remaining = {(r.topic, r.partition): (r.start, r.end) for r in group}
            try:
                if self._unsupported:
                    raise _UnsupportedBrokerError
                yield from self._read(remaining)
            except _UnsupportedBrokerError:
                rest = [
                    FetchRange(t, p, start, end)
                    for (t, p), (start, end) in sorted(remaining.items())
                ]
                yield from KafkaFetcher(self._client, timeout=self._timeout).fetch(rest)

    def _read(self, remaining: _Remaining) -> Iterator[tuple[str, MessageColumns]]:
        """Read what is `remaining`, and remove from it what was yielded.

        If a broker goes away, the fetch waits: its leaders may move, or it may come back. If no
        broker was ever reached, the error is raised at once.
        """
        began = heard = time.monotonic()
        while remaining:
            before = dict(remaining)
            try:
                yield from self._read_from_leaders(remaining, heard)
            except _ConnectionLostError:
                if heard == began and remaining == before:
                    raise
            if remaining != before:
                heard = time.monotonic()
            if remaining:
                self._check_heard(heard, remaining)
                time.sleep(_RETRY_SECONDS)

    def _read_from_leaders(
        self, remaining: _Remaining, heard: float
    ) -> Iterator[tuple[str, MessageColumns]]:
        """Read until nothing remains, or another broker leads a partition."""
        at = {partition: start for partition, (start, _) in remaining.items()}
        by_leader = self._partitions_by_leader(remaining)
        asked: list[Address] = []
        try:
            for address, partitions in by_leader.items():
                if self._send_fetch(address, partitions, at, remaining):
                    asked.append(address)
            moved = False
            while asked:
                found, wrong = self._receive_fetch(asked[0], at, remaining)
                address = asked.pop(0)
                moved |= wrong
                if not moved and self._send_fetch(address, by_leader[address], at, remaining):
                    asked.append(address)
                heard = time.monotonic() if found else heard
                for topic, batches in found.items():
                    for chunk in self._unpacked(topic, batches):
                        inside = _within_ranges(topic, chunk, remaining)
                        if len(inside):
                            yield topic, inside
                _advance(remaining, by_leader[address], at)
                self._check_heard(heard, remaining)
        finally:
            for address in asked:  # its response would be taken for the next one
                self._drop(address)

    def _send_fetch(
        self,
        address: Address,
        partitions: Sequence[_TopicPartition],
        at: Mapping[_TopicPartition, int],
        remaining: _Remaining,
    ) -> bool:
        """Send the next fetch to one broker; return False if nothing remains there."""
        wanted = [p for p in partitions if p in remaining and at[p] < remaining[p][1]]
        if wanted:
            # A broker serves the first partitions of a request first: rotate them.
            wanted.sort(key=lambda p: at[p] - remaining[p][0])
            offsets = [(topic, number, at[topic, number]) for topic, number in wanted]
            body = requests.fetch_request(
                offsets,
                wait_ms=_MAX_WAIT_MS,
                max_bytes=_MAX_FETCH_BYTES,
                partition_max_bytes=self._partition_max_bytes,
            )
            self._send(address, requests.FETCH, body)
        return bool(wanted)

    def _receive_fetch(
        self, address: Address, at: dict[_TopicPartition, int], remaining: _Remaining
    ) -> tuple[dict[str, list[PartitionBatch]], bool]:
        """Return the batches of one response by topic, and whether a leader has moved.

        Advances the offsets in `at`.
        """
        found: dict[str, list[PartitionBatch]] = {}
        moved = False
        for one in self._response(address, requests.parse_fetch_response):
            where = one.topic, one.partition
            if one.error in _STALE_METADATA:
                moved = True
                continue
            if one.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise retention_gap_error(one.topic, one.partition, at[where])
            if one.error:
                message = f"{one.topic}[{one.partition}]: {_error_name(one.error)}"
                raise unreachable_error(self._bootstrap, message)
            try:
                batches, position = data_batches(one, at[where])
            except InvalidBatchError as error:
                if error.reason == "magic":
                    raise _UnsupportedBrokerError from None
                message = f"{one.topic}[{one.partition}] from offset {at[where]}: {error.message}"
                raise CorruptError(message) from None
            if batches:
                found.setdefault(one.topic, []).extend(batches)
            elif position == at[where] >= one.end:
                position = remaining[where][1]  # the log ends here, after a gap
            at[where] = position
        return found, moved

    def _unpacked(self, topic: str, found: Sequence[PartitionBatch]) -> Iterator[MessageColumns]:
        try:
            yield from decode_batches(found, self._backend)
        except CorruptError as error:
            raise CorruptError(f"{topic}: {error.message}") from None

    def _check_heard(self, heard: float, remaining: _Remaining) -> None:
        if remaining and time.monotonic() - heard > self._timeout:
            where = [f"{topic}[{p}] to {end}" for (topic, p), (_, end) in sorted(remaining.items())]
            raise silent_broker_error(self._bootstrap, where, self._timeout)

    def _partitions_by_leader(self, remaining: _Remaining) -> dict[Address, list[_TopicPartition]]:
        """Return the partitions to read from each broker, without those that have no leader."""
        connection = self._any_connection()
        topics = sorted({topic for topic, _ in remaining})
        self._send(connection.address, requests.METADATA, requests.metadata_request(topics))
        message = self._response(connection.address, requests.parse_metadata_response)
        by_leader: dict[Address, list[_TopicPartition]] = {}
        for topic, partition in sorted(remaining):
            error, leaders = message.get(topic, (0, {}))
            if error and error not in _STALE_METADATA:
                raise unreachable_error(self._bootstrap, f"{topic}: {_error_name(error)}")
            leader = leaders.get(partition)
            if leader is not None and leader.address is not None:
                by_leader.setdefault(leader.address, []).append((topic, partition))
        return by_leader

    def _any_connection(self) -> _BrokerConnection:
        """Return a connection to some broker; the bootstrap addresses are tried in turn."""
        for connection in self._connections.values():
            return connection
        failed: UnreachableError | None = None
        for address in self._bootstrap.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                return self._connection((host.strip("[]"), int(port)))
            except UnreachableError as error:
                failed = error
            except ValueError:
                raise _UnsupportedBrokerError from None
        assert failed is not None
        raise failed

    def _connection(self, address: Address) -> _BrokerConnection:
        if address not in self._connections:
            try:
                connection = _BrokerConnection(address, self._timeout)
            except OSError as error:
                raise self._broken(address, error) from None
            self._connections[address] = connection
            self._check_versions(address)
        return self._connections[address]

    def _check_versions(self, address: Address) -> None:
        self._send(address, requests.API_VERSIONS, b"")
        try:
            known = self._response(address, requests.parse_api_versions_response)
        except UnreachableError:
            raise _UnsupportedBrokerError from None
        for key, version in (requests.METADATA, requests.FETCH):
            low, high = known.get(key, (0, -1))
            if not low <= version <= high:
                raise _UnsupportedBrokerError

    def _response(self, address: Address, read: Callable[[memoryview], _Parsed]) -> _Parsed:
        """Return the response to the last request; a connection that breaks is dropped."""
        try:
            return read(self._connections[address].receive())
        except (OSError, struct.error, ValueError) as error:
            raise self._broken(address, error) from None

    def _send(self, address: Address, api: tuple[int, int], body: bytes) -> None:
        try:
            self._connection(address).ask(api, body)
        except OSError as error:
            raise self._broken(address, error) from None

    def _broken(self, address: Address, error: Exception) -> _ConnectionLostError:
        self._drop(address)
        return _ConnectionLostError(
            unreachable_error(self._bootstrap, error).message, fix=NO_BROKER_FIX
        )

    def _drop(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


class _BrokerConnection:
    """A socket to one broker, with at most one request in flight."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address  # host and port
        self._socket = socket.create_connection(address, timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked = 0  # correlation id of the last request

    def ask(self, api: tuple[int, int], body: bytes) -> None:
        """Send a request."""
        self._asked += 1
        self._socket.sendall(requests.request_frame(api, self._asked, body))

    def receive(self) -> memoryview:
        """Return the body of the response to the request in flight."""
        size, answered = _RESPONSE_HEADER.unpack(self._exactly(_RESPONSE_HEADER.size))
        if answered != self._asked or not 4 <= size <= _MAX_RESPONSE_BYTES:
            raise ValueError("the reply is none of Kafka's protocol")
        return self._exactly(size - 4)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _exactly(self, size: int) -> memoryview:
        reply = memoryview(bytearray(size))
        at = 0
        while at < size:
            count = self._socket.recv_into(reply[at:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            at += count
        return reply


def _within_ranges(topic: str, chunk: MessageColumns, remaining: _Remaining) -> MessageColumns:
    """Return the messages inside the ranges: a batch may begin before one, or end after it."""
    wanted = {partition: ends for (name, partition), ends in remaining.items() if name == topic}
    bounds = np.zeros((max(wanted) + 1, 2), np.int64)
    for partition, ends in wanted.items():
        bounds[partition] = ends
    limits = bounds[chunk.partitions]
    good = (chunk.offsets >= limits[:, 0]) & (chunk.offsets < limits[:, 1])
    return chunk if good.all() else chunk.where(good)


def _advance(
    remaining: _Remaining, partitions: Sequence[_TopicPartition], at: Mapping[_TopicPartition, int]
) -> None:
    for partition in partitions:
        if partition in remaining:
            _, end = remaining.pop(partition)
            if at[partition] < end:
                remaining[partition] = (at[partition], end)


def _error_name(error: int) -> str:
    return ErrorCode(error).name if error in ErrorCode.__members__.values() else f"error {error}"
