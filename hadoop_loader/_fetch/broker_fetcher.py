"""Reading a log without an object for each message: plain sockets, batches as they are.

Rules:

- The same promises as `fetch.KafkaFetcher`: every message of the ranges, once, in order by
  partition; nothing is committed or reset; a broker that goes silent ends the fetch with an error.
- What this client does not speak (TLS, logins, brokers before Kafka 0.11, logs that still hold
  their formats) is read through librdkafka, from where this one came to.
- One request at a time for each broker, sent before the reply of the one before is worked on: the
  broker and this process work at the same time, and two replies are all the memory it takes.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from hadoop_loader._fetch import requests as wire
from hadoop_loader._fetch.batches import Block, blocks, messages
from hadoop_loader._fetch.kafka_log import NO_BROKER, KafkaFetcher, silent, unreachable
from hadoop_loader._fetch.messages import Message, Messages
from hadoop_loader._fetch.ranges import Range, dropped, rounds
from hadoop_loader._jit.backend import PROCESS, Choice
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.records import InvalidBatchError
from headworks.errors import CorruptError, UnreachableError

__all__ = ["BrokerFetcher"]

Address = tuple[str, int]
_At = tuple[str, int]  # a topic, and the number of a partition
_Left = dict[_At, tuple[int, int]]  # offsets that are still to be read
_Read = TypeVar("_Read")

_REPLY = 8 << 20
_EACH = 4 << 20
_LARGEST_REPLY = 1 << 30
_WAIT_MS = 500
_PAUSE = 0.2
_HEAD = struct.Struct(">ii")
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


class _ForeignError(Exception):
    """The broker, or its log, is of a kind that librdkafka knows and this client does not."""


class _BrokenError(UnreachableError):
    """A connection that could not be made, or that broke."""


class BrokerFetcher:
    """A Kafka-protocol broker, for a task; `client` is properties of librdkafka.

    `each`: the bytes that are asked of a partition at a time.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        timeout: float = 30.0,
        choice: Choice = PROCESS,
        each: int = _EACH,
    ) -> None:
        self._client = client
        self._bootstrap: str = client["bootstrap.servers"]
        self._timeout = timeout
        self._choice = choice
        self._each = each
        self._connections: dict[Address, _Connection] = {}
        self._foreign = client.get("security.protocol", "plaintext").lower() != "plaintext"

    def __enter__(self) -> BrokerFetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections = {}

    def fetch(self, ranges: Sequence[Range]) -> Iterator[tuple[str, Sequence[Message]]]:
        """See Fetcher.fetch."""
        for group in rounds(ranges):
            left = {(r.topic, r.partition): (r.start, r.end) for r in group}
            try:
                if self._foreign:
                    raise _ForeignError
                yield from self._read(left)
            except _ForeignError:
                rest = [Range(t, p, start, end) for (t, p), (start, end) in sorted(left.items())]
                yield from KafkaFetcher(self._client, timeout=self._timeout).fetch(rest)

    def _read(self, left: _Left) -> Iterator[tuple[str, Messages]]:
        """Read what is `left` (offsets by partition), and take from it what was given out.

        A broker that was there and goes away is waited for, as its leaders may move or it may
        come back; one that was never there is not.
        """
        began = heard = time.monotonic()
        while left:
            before = dict(left)
            try:
                yield from self._read_from_leaders(left, heard)
            except _BrokenError:
                if heard == began and left == before:
                    raise
            if left != before:
                heard = time.monotonic()
            if left:
                self._check_heard(heard, left)
                time.sleep(_PAUSE)

    def _read_from_leaders(self, left: _Left, heard: float) -> Iterator[tuple[str, Messages]]:
        """Read until nothing is left, or a partition is led by another broker."""
        at = {partition: start for partition, (start, _) in left.items()}
        routes = self._routes(left)
        asked: list[Address] = []
        try:
            for address, partitions in routes.items():
                if self._ask(address, partitions, at, left):
                    asked.append(address)
            moved = False
            while asked:
                found, wrong = self._take(asked[0], at, left)
                address = asked.pop(0)
                moved |= wrong
                if not moved and self._ask(address, routes[address], at, left):
                    asked.append(address)
                heard = time.monotonic() if found else heard
                for topic, batches in found.items():
                    for chunk in self._unpacked(topic, batches):
                        inside = _inside(topic, chunk, left)
                        if len(inside):
                            yield topic, inside
                _advance(left, routes[address], at)
                self._check_heard(heard, left)
        finally:
            for address in asked:  # a reply is on its way that nobody will wait for
                self._drop(address)

    def _ask(
        self, address: Address, partitions: Sequence[_At], at: Mapping[_At, int], left: _Left
    ) -> bool:
        """Send the next fetch to one broker; False if nothing of it is left there."""
        wanted = [p for p in partitions if p in left and at[p] < left[p][1]]
        if wanted:
            # Who is first in a request is served first: let all partitions have their turn.
            wanted.sort(key=lambda p: at[p] - left[p][0])
            offsets = [(topic, number, at[topic, number]) for topic, number in wanted]
            body = wire.fetch_request(offsets, wait_ms=_WAIT_MS, most=_REPLY, each=self._each)
            self._send(address, wire.FETCH, body)
        return bool(wanted)

    def _take(
        self, address: Address, at: dict[_At, int], left: _Left
    ) -> tuple[dict[str, list[Block]], bool]:
        """The batches of one reply, by topic, and whether a partition has moved; advances `at`."""
        found: dict[str, list[Block]] = {}
        moved = False
        for one in self._reply(address, wire.fetch_reply):
            where = one.topic, one.partition
            if one.error in _STALE_METADATA:
                moved = True
                continue
            if one.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise dropped(one.topic, one.partition, at[where])
            if one.error:
                told = f"{one.topic}[{one.partition}]: {_code(one.error)}"
                raise unreachable(self._bootstrap, told)
            try:
                batches, position = blocks(one, at[where])
            except InvalidBatchError as error:
                if error.reason == "magic":
                    raise _ForeignError from None
                told = f"{one.topic}[{one.partition}] from offset {at[where]}: {error.message}"
                raise CorruptError(told) from None
            if batches:
                found.setdefault(one.topic, []).extend(batches)
            elif position == at[where] >= one.end:
                position = left[where][1]  # the log ends here, if with a gap
            at[where] = position
        return found, moved

    def _unpacked(self, topic: str, found: Sequence[Block]) -> Iterator[Messages]:
        try:
            yield from messages(found, self._choice)
        except CorruptError as error:
            raise CorruptError(f"{topic}: {error.message}") from None

    def _check_heard(self, heard: float, left: _Left) -> None:
        if left and time.monotonic() - heard > self._timeout:
            where = [f"{topic}[{p}] to {end}" for (topic, p), (_, end) in sorted(left.items())]
            raise silent(self._bootstrap, where, self._timeout)

    def _routes(self, left: _Left) -> dict[Address, list[_At]]:
        """Which broker to ask for which partition; those without a leader are left out."""
        connection = self._any_connection()
        topics = sorted({topic for topic, _ in left})
        self._send(connection.address, wire.METADATA, wire.topics_request(topics))
        told = self._reply(connection.address, wire.leaders)
        routes: dict[Address, list[_At]] = {}
        for topic, partition in sorted(left):
            error, leaders = told.get(topic, (0, {}))
            if error and error not in _STALE_METADATA:
                raise unreachable(self._bootstrap, f"{topic}: {_code(error)}")
            leader = leaders.get(partition)
            if leader is not None and leader.address is not None:
                routes.setdefault(leader.address, []).append((topic, partition))
        return routes

    def _any_connection(self) -> _Connection:
        """A connection to some broker; the bootstrap addresses are tried in turn."""
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
                raise _ForeignError from None
        assert failed is not None
        raise failed

    def _connection(self, address: Address) -> _Connection:
        if address not in self._connections:
            try:
                connection = _Connection(address, self._timeout)
            except OSError as error:
                raise self._broken(address, error) from None
            self._connections[address] = connection
            self._check_versions(address)
        return self._connections[address]

    def _check_versions(self, address: Address) -> None:
        self._send(address, wire.API_VERSIONS, b"")
        try:
            known = self._reply(address, wire.versions)
        except UnreachableError:
            raise _ForeignError from None
        for key, version in (wire.METADATA, wire.FETCH):
            low, high = known.get(key, (0, -1))
            if not low <= version <= high:
                raise _ForeignError

    def _reply(self, address: Address, read: Callable[[memoryview], _Read]) -> _Read:
        """The reply to what was asked last; a connection that breaks is forgotten."""
        try:
            return read(self._connections[address].receive())
        except (OSError, struct.error, ValueError) as error:
            raise self._broken(address, error) from None

    def _send(self, address: Address, api: tuple[int, int], body: bytes) -> None:
        try:
            self._connection(address).ask(api, body)
        except OSError as error:
            raise self._broken(address, error) from None

    def _broken(self, address: Address, error: Exception) -> _BrokenError:
        self._drop(address)
        return _BrokenError(unreachable(self._bootstrap, error).message, fix=NO_BROKER)

    def _drop(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


class _Connection:
    """A socket to one broker, with at most one request on its way."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self._socket = socket.create_connection(address, timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked = 0

    def ask(self, api: tuple[int, int], body: bytes) -> None:
        """Send a request."""
        self._asked += 1
        self._socket.sendall(wire.request(api, self._asked, body))

    def receive(self) -> memoryview:
        """The body of the reply to the request on its way."""
        size, answered = _HEAD.unpack(self._exactly(_HEAD.size))
        if answered != self._asked or not 4 <= size <= _LARGEST_REPLY:
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


def _inside(topic: str, chunk: Messages, left: _Left) -> Messages:
    """The messages inside a topic's ranges: a batch may begin before its range, or end behind."""
    wanted = {partition: ends for (name, partition), ends in left.items() if name == topic}
    bounds = np.zeros((max(wanted) + 1, 2), np.int64)
    for partition, ends in wanted.items():
        bounds[partition] = ends
    limits = bounds[chunk.partitions]
    good = (chunk.offsets >= limits[:, 0]) & (chunk.offsets < limits[:, 1])
    return chunk if good.all() else chunk.where(good)


def _advance(left: _Left, partitions: Sequence[_At], at: Mapping[_At, int]) -> None:
    for partition in partitions:
        if partition in left:
            _, end = left.pop(partition)
            if at[partition] < end:
                left[partition] = (at[partition], end)


def _code(error: int) -> str:
    return ErrorCode(error).name if error in ErrorCode.__members__.values() else f"error {error}"
