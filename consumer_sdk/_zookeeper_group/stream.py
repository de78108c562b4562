"""One stream of a member: it reads its partitions in the thread that polls.

Rules:

- Only the stream uses its librdkafka client and calls the application's callbacks. The member's
  thread asks for changes through a `Handover`, so that a partition stops between two messages.
- The stream checks the member's lease for every message, and returns none without it.
- The stream waits for brokers that do not answer: their partitions return, or move to others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from consumer_sdk._membership import OnPartitions, Start
from consumer_sdk._message import Partition
from consumer_sdk._offsets import offsets_of
from consumer_sdk._zookeeper_group.member import Handover, ZooKeeperMember
from headworks._kafka.clients import KafkaConsumer

__all__ = ["ZooKeeperStream"]

_log = logging.getLogger("headworks.consumer")
_MAX_FETCHED_MESSAGES = 500
_FETCH_SECONDS = 0.1
_TRANSIENT_ERRORS = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._PARTITION_EOF,
}


class ZooKeeperStream:
    """A membership in the group of `member` (see `Membership`)."""

    def __init__(
        self,
        member: ZooKeeperMember,
        properties: Mapping[str, Any],
        start: Start,
        on_assigned: OnPartitions | None,
        on_revoked: OnPartitions | None,
        *,
        owns_member: bool,
    ) -> None:
        self._member = member
        self._start = start
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._owns_member = owns_member  # whether closing this stream closes the member
        self._handover = Handover()
        member.handovers.append(self._handover)
        self._assigned: set[Partition] = set()  # the assignment of the client
        self._buffer: list[confluent_kafka.Message] = []  # fetched messages, the next one last
        self._closed = False
        self.client = KafkaConsumer(properties)

    @property
    def member(self) -> ZooKeeperMember:
        """The member whose stream this is."""
        return self._member

    @property
    def has_buffered(self) -> bool:
        """See `Membership`."""
        return bool(self._buffer) and not self._handover.changed.is_set() and self._member.valid

    @property
    def closed(self) -> bool:
        """See `Membership`."""
        return self._closed or self._member.closed

    @property
    def assignment(self) -> list[Partition]:
        """See `Membership`."""
        with self._handover.lock:
            return sorted(self._handover.reading)

    def next(self, timeout: float) -> confluent_kafka.Message | None:
        """See `Membership`."""
        if not self._member.started:
            self._member.start()
        deadline = time.monotonic() + timeout
        while not self.closed:
            if self._handover.changed.is_set():
                self._apply_handover()
            valid = self._member.valid
            if self._buffer and valid:
                message = self._buffer.pop()
                problem = message.error()
                if problem is None or problem.code() not in _TRANSIENT_ERRORS:
                    return message
                continue
            left = deadline - time.monotonic()
            if left <= 0 and (timeout > 0 or self._buffer):
                return None
            if valid and self._assigned:
                self._fetch(max(0.0, min(left, _FETCH_SECONDS)))
                if left <= 0 and not self._buffer:
                    return None
            else:
                self._handover.changed.wait(max(0.0, min(left, _FETCH_SECONDS)))
                if left <= 0:
                    return None
        return None

    def put_back(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""
        if Partition(message.topic() or "", message.partition() or 0) in self._assigned:
            self._buffer.append(message)

    def processed(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""
        partition = Partition(message.topic() or "", message.partition() or 0)
        with self._handover.lock:
            if partition in self._handover.reading:  # otherwise its new owner repeats the message
                self._handover.processed[partition] = (message.offset() or 0) + 1

    def move(self, offsets: Mapping[Partition, int], *, commit: bool) -> None:
        """See `Membership`."""
        self._discard(set(offsets))
        for partition, offset in offsets.items():
            self.client.seek(TopicPartition(*partition, offset))
        with self._handover.lock:
            for partition, offset in offsets.items():
                self._handover.processed.pop(partition, None)
                if commit and partition in self._handover.reading:
                    self._handover.processed[partition] = offset
        if commit:
            self._member.commit()

    def commit(self) -> None:
        """See `Membership`."""
        self._member.commit()

    def close(self) -> None:
        """Release all partitions; the first stream of a member also closes the member."""
        if self._closed:
            return
        self._closed = True
        with self._handover.lock:
            reading = sorted(self._handover.reading)
        self._stop_reading(reading)
        with self._handover.lock:  # the member does not wait for a closed stream
            self._handover.reading.clear()
            self._handover.to_release.clear()
            self._handover.released.notify_all()
        self.client.close()
        if self._owns_member:
            self._member.close()

    def _fetch(self, timeout: float) -> None:
        self._buffer = self.client.consume(1, timeout)
        if self._buffer:
            self._buffer += self.client.consume(_MAX_FETCHED_MESSAGES, 0)
        self._buffer.reverse()

    def _apply_handover(self) -> None:
        """Stop and start the partitions that the member's thread asks for."""
        handover = self._handover
        with handover.lock:
            handover.changed.clear()
            gone = sorted((self._assigned - handover.reading) | handover.to_release)
        try:
            self._stop_reading(gone)
            with handover.lock:
                handover.reading -= handover.to_release & set(gone)
                handover.to_release -= set(gone)
                handover.released.notify_all()
                to_start = {p: at for p, at in handover.to_start.items() if p not in self._assigned}
            if to_start:
                self._start_reading(to_start)
        except BaseException:
            handover.changed.set()  # a callback or the broker failed: the next poll repeats it
            raise

    def _stop_reading(self, partitions: list[Partition]) -> None:
        ours = [TopicPartition(*p) for p in partitions if p in self._assigned]
        if ours:
            self._assigned -= set(partitions)
            self._discard(set(partitions))
            self.client.incremental_unassign(ours)
            if self._on_revoked is not None:
                self._on_revoked(partitions)

    def _start_reading(self, positions: Mapping[Partition, int | None]) -> None:
        """Read partitions from the group's committed offsets, or from `start` without one."""
        offsets = {p: OFFSET_BEGINNING if at is None else at for p, at in positions.items()}
        fresh = [partition for partition, at in positions.items() if at is None]
        placed: dict[Partition, int] = {}
        if fresh and self._start != "earliest":
            placed = offsets_of(self.client, fresh, self._start)
        with self._handover.lock:
            ours = (
                positions.keys() & self._handover.to_start.keys()
            )  # the member may have dropped some
            for partition in ours:
                del self._handover.to_start[partition]
                self._handover.reading.add(partition)
                if (
                    partition in placed
                ):  # it becomes the group's offset: a new owner must not begin later
                    self._handover.processed.setdefault(partition, placed[partition])
        offsets |= placed
        self._assigned |= ours
        self.client.incremental_assign([TopicPartition(*p, offsets[p]) for p in sorted(ours)])
        if self._on_assigned is not None:
            self._on_assigned(sorted(ours))

    def _discard(self, partitions: set[Partition]) -> None:
        self._buffer = [m for m in self._buffer if (m.topic(), m.partition()) not in partitions]
