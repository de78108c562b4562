"""Fetch: answer with the data that is there, or wait until there is enough.

Rules:

- Answer at once if there is an error, enough data, or nothing to wait for. Otherwise wait for an
  append or for the client's time limit. An empty answer at once would make clients spin, and a
  missing answer would make them hang.
- A closed connection leaves no waiting fetch behind.
- The first partition with data returns at least one whole batch, however small the client's limits.
- A fetch of very many partitions that wakes in vain pauses before it looks again, so that its
  looking does not delay the other clients.
- A batch that was found damaged ends the data before it. A fetch that begins with it gets
  CORRUPT_MESSAGE. A partition without such batches pays one look at an empty list.
- A client that leaves, or asks for an offset out of range, may have read a damaged batch. The
  scrubber then checks what its last fetch got. With `verify_fetches` the CRC is checked before.
- Fetch sessions are declined: the session id is 0, and continuing one is an error.
- A topic id is looked up whenever the fetch looks: its name may belong to another topic meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from headworks._broker.handlers.client import Client
from headworks._broker.handlers.leadership import partition_of
from headworks._broker.handlers.node import Node
from headworks._broker.log import OffsetOutOfRangeError
from headworks._broker.log.partition import LEADER_EPOCH
from headworks._broker.topics import HostedPartition
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    PartitionData,
    Piece,
    encode_reply,
)
from headworks._kafka.protocol.frame import RequestHeader
from headworks._kafka.records.file_slice import FileSlice
from headworks.errors import CorruptError

_FETCH = int(ApiKey.FETCH)

_LONG_LOOK_SECONDS = 0.002
_PAUSE_FACTOR = 50  # the pause is this many times as long as the look
_MAX_REMEMBERED_SLICES = 100  # of one client
_MAX_REPLY_BYTES = 1 << 30  # its length must fit 31 bits


class Fetch:
    """One fetch request; `start` answers through `reply`, at once or later."""

    def __init__(
        self,
        node: Node,
        client: Client,
        header: RequestHeader,
        request: FetchRequest,
        reply: Callable[[list[Piece]], None],
    ) -> None:
        self._node = node
        self._client = client
        self._header = header
        self._request = request
        self._reply = reply
        self._timer: asyncio.TimerHandle | None = None  # set while it waits
        self._pause: asyncio.TimerHandle | None = None  # set while it may not look

    def start(self) -> None:
        """Answer, or wait until there is something to answer."""
        request = self._request
        if request.session_epoch > 0:
            self._reply(
                encode_reply(
                    self._header.correlation_id,
                    self._header.version,
                    [],
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                )
            )
            return
        reads, enough = self._read()
        if enough or request.max_wait_ms <= 0 or not reads:
            self._answer(reads)
            return
        for partition in self._partitions():
            partition.watch(self._wake)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(request.max_wait_ms / 1000, self._expire)

    def cancel(self) -> None:
        """Stop waiting without an answer, because the connection is closed."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            for partition in self._partitions():
                partition.unwatch(self._wake)

    def _wake(self) -> None:
        if self._pause is not None:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        reads, enough = self._read()
        if enough:
            self.cancel()
            self._answer(reads)
        elif (spent := loop.time() - began) > _LONG_LOOK_SECONDS:
            self._pause = loop.call_later(spent * _PAUSE_FACTOR, self._look_again)

    def _look_again(self) -> None:
        self._pause = None
        self._wake()

    def _expire(self) -> None:
        self.cancel()
        self._answer(self._read()[0])

    def _answer(self, reads: list[PartitionData]) -> None:
        for wanted, read in zip(self._request.partitions, reads, strict=True):
            if read.error:
                self._client.count_error(_FETCH, read.error)
                if read.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    suspect_last_fetch(self._node, self._client)
            elif read.slice is not None and (size := read.slice.size):
                topic = read.topic
                self._client.served[topic, read.partition] = (wanted.offset, size)
                name = topic if isinstance(topic, str) else self._node.hosted.name_of(topic)
                if name is not None:
                    self._node.counters.fetched[name] += size
        served = self._client.served
        while len(served) > _MAX_REMEMBERED_SLICES:
            del served[next(iter(served))]
        self._reply(encode_reply(self._header.correlation_id, self._header.version, reads))

    def _partitions(self) -> list[HostedPartition]:
        found = []
        for wanted in self._request.partitions:
            name = self._node.hosted.name_of(wanted.topic)
            if name is not None:
                found.append(self._node.hosted.partition(name, wanted.partition))
        return [partition for partition in found if partition is not None]

    def _read(self) -> tuple[list[PartitionData], bool]:
        """Return what each partition has now, and whether that is enough to answer."""
        room = min(self._request.max_bytes, _MAX_REPLY_BYTES)
        total, failed = 0, False
        reads = []
        for wanted in self._request.partitions:
            read = self._read_one(wanted, room - total, first=not total)
            reads.append(read)
            if read.error:
                failed = True
            elif read.slice is not None:
                total += read.slice.size
        return reads, failed or total >= self._request.min_bytes

    def _read_one(self, wanted: FetchPartition, room: int, *, first: bool) -> PartitionData:
        topic, index = wanted.topic, wanted.partition
        name = topic if isinstance(topic, str) else self._node.hosted.name_of(topic)
        if name is None:
            return PartitionData(topic, index, ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._client.may_use_topic(_FETCH, name):
            return PartitionData(topic, index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = partition_of(self._node, name, index)
        if isinstance(partition, ErrorCode):
            return PartitionData(topic, index, partition)
        if wanted.leader_epoch > LEADER_EPOCH:
            return PartitionData(topic, index, ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = partition.log
        start = log.log_start_offset
        aborted: Sequence[tuple[int, int]] = ()
        limit = min(wanted.max_bytes, max(room, 0))
        try:
            if self._request.committed:
                piece, found = log.read_committed(wanted.offset, limit, at_least_one=first)
                aborted = [(one.producer_id, one.first) for one in found] if found else ()
            else:
                piece = log.read(wanted.offset, limit, at_least_one=first)
            intact: FileSlice | None = piece
            if partition.damaged_batches:
                intact = partition.before_damage(piece)
            if self._node.verify_fetches and intact is not None:
                intact = partition.verified(intact)
        except OffsetOutOfRangeError:
            return PartitionData(
                topic, index, ErrorCode.OFFSET_OUT_OF_RANGE, log.high_watermark, start
            )
        except CorruptError as error:
            partition.note_damage(str(error))
            return PartitionData(topic, index, ErrorCode.CORRUPT_MESSAGE, log.high_watermark, start)
        except OSError:
            return PartitionData(topic, index, ErrorCode.KAFKA_STORAGE_ERROR)
        if intact is None:
            return PartitionData(topic, index, ErrorCode.CORRUPT_MESSAGE, log.high_watermark, start)
        end = log.high_watermark
        if log.producers.transactions.none and not aborted:
            return PartitionData(topic, index, 0, end, start, intact)
        return PartitionData(topic, index, 0, end, start, intact, log.last_stable_offset, aborted)


def suspect_last_fetch(node: Node, client: Client) -> None:
    """Have the scrubber check what the client's last fetch got."""
    served, client.served = client.served, {}
    for (topic, index), (offset, size) in served.items():
        name = node.hosted.name_of(topic)
        partition = None if name is None else node.hosted.partition(name, index)
        if not node.hosted.scrubber.takes_suspects:
            return
        if partition is not None:
            with suppress(OffsetOutOfRangeError, CorruptError, OSError):  # removed, or known
                piece = partition.log.read(offset, size)
                node.hosted.scrubber.suspect(partition, piece)
