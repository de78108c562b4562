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

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from hadoop_loader._fetch import requests
from hadoop_loader._fetch.batches import (
    PartitionBatch,
    Remaining,
    TopicPartition,
    advance,
    data_batches,
    decode_batch,
    decode_batches,
    within_ranges,
)
from hadoop_loader._fetch.broker_connection import Address, BrokerConnection
from hadoop_loader._fetch.damage import DamagedRange, DamageReport, damage_error
from hadoop_loader._fetch.kafka_log import (
    NO_BROKER_FIX,
    KafkaFetcher,
    silent_broker_error,
    unreachable_error,
)
from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns
from hadoop_loader._fetch.ranges import FetchRange, consumer_assignments, retention_gap_error
from hadoop_loader._fetch.requests import FetchedPartition
from headworks._host_port import split_host_port
from headworks._kafka.damaged_batch import DamagedBatch, offset_after
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.records import HEADER_SIZE, InvalidBatchError
from headworks._native import COMPILED
from headworks.errors import CorruptError, UnreachableError

_Parsed = TypeVar("_Parsed")

_MAX_FETCH_BYTES = 4 << 20  # memory that a process writes first is slow
_MAX_PARTITION_BYTES = 4 << 20
_CUT_SHORT = "it is longer than what the broker has of it"
_MAX_CUT_SHORT = 3  # times that a first batch may be incomplete
_MAX_WAIT_MS = 500
_RETRY_SECONDS = 0.2


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
        compiled: bool = COMPILED,
        partition_max_bytes: int = _MAX_PARTITION_BYTES,
    ) -> None:
        self._client = client  # properties of librdkafka
        self._bootstrap: str = client["bootstrap.servers"]
        self._timeout = timeout  # seconds without data until the fetch fails
        self._compiled = compiled  # whether compiled code finds the records
        self._partition_max_bytes = partition_max_bytes  # asked of each partition in a request
        self._connections: dict[Address, BrokerConnection] = {}  # open, by address of the broker
        self._damage: DamageReport | None = None  # of the fetch in progress
        # Partitions whose first batch is cut short, and how often in a row.
        self._cut_short: Counter[TopicPartition] = Counter()
        self._leaderless: set[TopicPartition] = set()  # by the last metadata
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

    def fetch(
        self, ranges: Sequence[FetchRange], damage: DamageReport | None = None
    ) -> Iterator[tuple[str, Sequence[FetchedMessage]]]:
        """See Fetcher.fetch."""
        self._damage = damage
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
                fetcher = KafkaFetcher(self._client, timeout=self._timeout)
                yield from fetcher.fetch(rest, damage)

    def _read(self, remaining: Remaining) -> Iterator[tuple[str, MessageColumns]]:
        """Read what is `remaining`, and remove from it what was yielded.

        If a broker goes away, the fetch waits for another leader, unless none was ever reached.
        """
        began = heard = time.monotonic()
        while remaining:
            before = dict(remaining)
            try:
                yield from self._read_from_leaders(remaining, heard)
            except _ConnectionLostError:
                if heard == began and remaining == before:
                    raise
            heard = heard if remaining == before else time.monotonic()
            self._leave_leaderless(heard, remaining)
            if remaining:
                self._check_heard(heard, remaining)
                time.sleep(_RETRY_SECONDS)

    def _read_from_leaders(
        self, remaining: Remaining, heard: float
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
                    for chunk in self._unpacked(topic, batches, remaining):
                        inside = within_ranges(topic, chunk, remaining)
                        if len(inside):
                            yield topic, inside
                advance(remaining, by_leader[address], at)
                self._check_heard(heard, remaining)
        finally:
            for address in asked:  # its response would be taken for the next one
                self._drop(address)

    def _send_fetch(
        self,
        address: Address,
        partitions: Sequence[TopicPartition],
        at: Mapping[TopicPartition, int],
        remaining: Remaining,
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
        self, address: Address, at: dict[TopicPartition, int], remaining: Remaining
    ) -> tuple[dict[str, list[PartitionBatch]], bool]:
        """Return the batches of one response by topic, and whether a leader has moved.

        Advances the offsets in `at`.
        """
        found: dict[str, list[PartitionBatch]] = {}
        moved = False
        for one in self._response(address, requests.parse_fetch_response):
            where = one.topic, one.partition
            if where not in remaining:
                continue  # it ends before a damaged batch of the response before
            if one.error in requests.STALE_METADATA:
                moved = True
                continue
            if one.error == ErrorCode.CORRUPT_MESSAGE:
                self._leave_damage(where, at, remaining, requests.error_name(one.error))
                continue
            if one.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise retention_gap_error(one.topic, one.partition, at[where])
            if one.error:
                message = f"{one.topic}[{one.partition}]: {requests.error_name(one.error)}"
                raise unreachable_error(self._bootstrap, message)
            try:
                batches, position, damaged = data_batches(one, at[where])
            except InvalidBatchError:  # another format, or a damaged one of ours
                raise _UnsupportedBrokerError from None
            if damaged is None and self._is_cut_short(one, at[where], position):
                damaged = InvalidBatchError("torn", _CUT_SHORT)
            if batches:
                found.setdefault(one.topic, []).extend(batches)
            if damaged is not None:
                at[where] = position
                self._leave_damage(where, at, remaining, damaged.message)
                continue
            if not batches and position == at[where] >= one.end:
                position = remaining[where][1]  # the log ends here, after a gap
            at[where] = position
        return found, moved

    def _is_cut_short(self, one: FetchedPartition, start: int, position: int) -> bool:
        """Return whether the first batch is incomplete again and again: its length is damaged."""
        where = one.topic, one.partition
        if position > start or len(one.records) < HEADER_SIZE:
            self._cut_short.pop(where, None)
            return False
        self._cut_short[where] += 1
        return self._cut_short[where] > _MAX_CUT_SHORT

    def _leave_damage(
        self,
        where: TopicPartition,
        at: dict[TopicPartition, int],
        remaining: Remaining,
        reason: str,
    ) -> None:
        """Continue behind the damaged batch at the partition's offset in `at`, or end there."""
        start, end = remaining[where]
        batch = DamagedBatch(*where, max(start, at[where]), reason)
        if self._damage is None:
            raise damage_error(batch)
        after = batch.offset
        if self._damage.skip or reason == _CUT_SHORT:
            after = min(end, offset_after(self._client, batch, timeout=self._timeout))
            if after <= batch.offset:
                return  # librdkafka reads it
        if self._damage.skip:
            at[where] = after
        else:
            after = batch.offset
            remaining[where] = (start, after)
        self._damage.found.append(DamagedRange(*where, batch.offset, after, reason))

    def _unpacked(
        self, topic: str, found: Sequence[PartitionBatch], remaining: Remaining
    ) -> Iterator[MessageColumns]:
        """Yield the messages of batches; one that does not decode is damaged."""
        done = 0
        try:
            for messages in decode_batches(found, compiled=self._compiled):
                yield messages
                done += len(messages)
            return
        except CorruptError as error:
            if self._damage is None:
                raise CorruptError(f"{topic}: {error.message}") from None
        rest = list(found)
        while rest[0].batch.record_count <= done:
            done -= rest.pop(0).batch.record_count
        yield from self._unpacked_singly(topic, rest, remaining, self._damage)

    def _unpacked_singly(
        self,
        topic: str,
        found: Sequence[PartitionBatch],
        remaining: Remaining,
        damage: DamageReport,
    ) -> Iterator[MessageColumns]:
        for block in found:
            where = topic, block.partition
            start, end = remaining[where]
            messages = decode_batch(block, compiled=self._compiled)
            if isinstance(messages, MessageColumns):
                yield messages
                continue
            first = max(start, block.batch.base_offset)
            if first >= end:
                continue
            after = min(end, block.batch.last_offset + 1) if damage.skip else first
            damage.found.append(DamagedRange(*where, first, after, messages))
            if not damage.skip:
                remaining[where] = (start, first)

    def _leave_leaderless(self, heard: float, remaining: Remaining) -> None:
        if self._damage is None or time.monotonic() - heard <= self._timeout:
            return
        for where in self._leaderless & remaining.keys():
            del remaining[where]
            self._damage.leaderless.add(where)

    def _check_heard(self, heard: float, remaining: Remaining) -> None:
        if remaining and time.monotonic() - heard > self._timeout:
            where = [f"{topic}[{p}] to {end}" for (topic, p), (_, end) in sorted(remaining.items())]
            raise silent_broker_error(self._bootstrap, where, self._timeout)

    def _partitions_by_leader(self, remaining: Remaining) -> dict[Address, list[TopicPartition]]:
        """Return the partitions to read from each broker, without those that have no leader."""
        self._leaderless = set()
        connection = self._any_connection()
        topics = sorted({topic for topic, _ in remaining})
        self._send(connection.address, requests.METADATA, requests.metadata_request(topics))
        message = self._response(connection.address, requests.parse_metadata_response)
        by_leader: dict[Address, list[TopicPartition]] = {}
        for topic, partition in sorted(remaining):
            error, leaders = message.get(topic, (0, {}))
            if error and error not in requests.STALE_METADATA:
                raise unreachable_error(self._bootstrap, f"{topic}: {requests.error_name(error)}")
            leader = leaders.get(partition)
            if leader is None or leader.address is None:
                self._leaderless.add((topic, partition))
            else:
                by_leader.setdefault(leader.address, []).append((topic, partition))
        return by_leader

    def _any_connection(self) -> BrokerConnection:
        """Return a connection to some broker; the bootstrap addresses are tried in turn."""
        for connection in self._connections.values():
            return connection
        failed: UnreachableError | None = None
        for place in map(split_host_port, self._bootstrap.split(",")):
            if place is None:  # librdkafka understands more, such as a missing port
                raise _UnsupportedBrokerError
            try:
                return self._connection(place)
            except UnreachableError as error:
                failed = error
        assert failed is not None
        raise failed

    def _connection(self, address: Address) -> BrokerConnection:
        if address not in self._connections:
            try:
                connection = BrokerConnection(address, self._timeout)
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
