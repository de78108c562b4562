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
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from consumer_sdk._application_thread import ApplicationThread
from consumer_sdk._damage import is_stale
from consumer_sdk._fetch_buffer import FetchBuffer, FetchLimits
from consumer_sdk._in_flight import HANDED_BACK_SECONDS, InFlight
from consumer_sdk._membership import OnPartitions, Start
from consumer_sdk._message import Partition
from consumer_sdk._message_step import MessageStep, PythonStep
from consumer_sdk._offsets import offsets_of
from consumer_sdk._reachability import close_within
from consumer_sdk._zookeeper_group.member import Handover, ZooKeeperMember
from headworks._kafka.clients import KafkaConsumer

_T = TypeVar("_T")
_log = logging.getLogger("headworks.consumer")
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
        limits: FetchLimits,
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
        self._fetched = FetchBuffer(limits)
        self._sought: dict[Partition, int] = {}  # where reading began, or was moved to last
        self._closed = False
        self.step: MessageStep = PythonStep()
        # The messages that are handled beside each other; None while it is one at a time.
        self._in_flight: InFlight | None = None
        self.client = KafkaConsumer(properties)

    @property
    def member(self) -> ZooKeeperMember:
        """The member whose stream this is."""
        return self._member

    @property
    def closed(self) -> bool:
        """See `Membership`."""
        return self._closed or self._member.closed

    def use(self, work: Callable[[confluent_kafka.Consumer], _T]) -> _T:
        """See `Membership`."""
        return work(self.client)

    @property
    def assignment(self) -> list[Partition]:
        """See `Membership`."""
        with self._handover.lock:
            return sorted(self._handover.reading)

    def exchange(self, processed: confluent_kafka.Message | None) -> confluent_kafka.Message | None:
        """See `Membership`."""
        if processed is not None:
            self.processed(processed)
        buffer = self._fetched.messages
        if not buffer or self._handover.changed.is_set() or not self._member.valid:
            return None
        return None if buffer[0].error() is not None else buffer.popleft()

    def next(self, timeout: float) -> confluent_kafka.Message | None:
        """See `Membership`."""
        if not self._member.started:
            self._member.start()
        deadline = time.monotonic() + timeout
        buffer = self._fetched.messages
        while not self.closed:
            if self._handover.changed.is_set():
                self._apply_handover()
            valid = self._member.valid
            if buffer and valid:
                message = buffer.popleft()
                problem = message.error()
                if problem is None:
                    return message
                if problem.code() not in _TRANSIENT_ERRORS and not self._has_lost_place(message):
                    return message
                continue
            left = deadline - time.monotonic()
            if left <= 0 and (timeout > 0 or buffer):
                return None
            if valid and self._assigned:
                self._fetched.fill(self.client, max(0.0, min(left, _FETCH_SECONDS)))
                if left <= 0 and not buffer:
                    return None
            else:
                self._handover.changed.wait(max(0.0, min(left, _FETCH_SECONDS)))
                if left <= 0:
                    return None
        return None

    def stay(self) -> None:
        """See `Membership`."""
        if self._handover.changed.is_set() and not self.closed:
            self._apply_handover()

    def has_lost(self, message: confluent_kafka.Message) -> bool:  # noqa: ARG002
        """See `Membership`; a stream gives up its partitions in the thread that polls."""
        return False

    def put_back(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""
        if Partition(message.topic() or "", message.partition() or 0) in self._assigned:
            self._fetched.messages.appendleft(message)

    def hand_over(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""
        if self._in_flight is None:
            self._in_flight = InFlight(self._store)
        if Partition(message.topic() or "", message.partition() or 0) in self._assigned:
            self._in_flight.add(message)

    def begin(self, message: confluent_kafka.Message) -> bool:
        """See `Membership`."""
        return self._in_flight is not None and self._in_flight.begin(message)

    def window(self, partition: tuple[str, int]) -> int:
        """See `Membership`."""
        return 0 if self._in_flight is None else self._in_flight.window(partition)

    def processed(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""
        if self._in_flight is None:
            place = Partition(message.topic() or "", message.partition() or 0)
            self._store(place, message.offset() or 0)
        else:
            self._in_flight.finish(message)

    def _store(self, partition: Partition, offset: int, _leader_epoch: int = -1) -> None:
        with self._handover.lock:
            if partition in self._handover.reading:  # otherwise its new owner repeats the message
                self._handover.processed[partition] = offset + 1

    def move(self, offsets: Mapping[Partition, int], *, commit: bool) -> None:
        """See `Membership`."""
        self._fetched.discard(set(offsets))
        if self._in_flight is not None:
            self._in_flight.release(offsets, 0.0)
        for partition, offset in offsets.items():
            self.client.seek(TopicPartition(*partition, offset))
        self._sought |= offsets
        with self._handover.lock:
            for partition, offset in offsets.items():
                self._handover.processed.pop(partition, None)
                if commit and partition in self._handover.reading:
                    self._handover.processed[partition] = offset
        if commit:
            self._member.commit()

    def position(self, partition: Partition) -> int | None:
        """See `Membership`."""
        if self._fetched.has(partition):
            return None  # librdkafka counts these as returned
        offset = self.client.position([TopicPartition(*partition)])[0].offset
        return offset if offset >= 0 else self._sought.get(partition)

    def resume(self, partition: Partition, offset: int, *, processed: bool) -> None:
        """See `Membership`."""
        if partition not in self._assigned:
            return
        self._fetched.discard({partition})
        place = TopicPartition(*partition, offset)
        self.client.incremental_unassign([place])  # a seek fails after `auto.offset.reset=error`
        self.client.incremental_assign([place])
        self._sought[partition] = offset
        if self._in_flight is not None:
            self._in_flight.forget_from(partition, offset)
            processed = processed and not self._in_flight.has(partition)
        with self._handover.lock:
            if processed and partition in self._handover.reading:
                self._handover.processed[partition] = offset

    def set_paused(self, partitions: Collection[Partition], *, paused: bool) -> None:
        """See `Membership`."""
        ours = set(partitions) & self._assigned
        places = [TopicPartition(*partition) for partition in ours]
        if not paused:
            self.client.resume(places)
            return
        for partition, offset in self._fetched.first_offsets(ours).items():
            self.resume(partition, offset, processed=False)
        self.client.pause(places)

    def commit(self) -> None:
        """See `Membership`."""
        self._member.commit()

    def close(self, timeout: float) -> None:
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
        close_within(self.client, ApplicationThread(), timeout, commit=False)
        if self._owns_member:
            self._member.close()

    def _has_lost_place(self, event: confluent_kafka.Message) -> bool:
        """Return to the stream's place if librdkafka lost another one, after damage."""
        problem = event.error()
        if problem is None or problem.code() != KafkaError._AUTO_OFFSET_RESET:
            return False
        partition = Partition(event.topic() or "", event.partition() or 0)
        position = self.position(partition)
        if position is None or not is_stale(event, position):
            return False
        self.resume(partition, position, processed=False)
        return True

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
            self._fetched.discard(set(partitions))
            for partition in partitions:
                self._sought.pop(partition, None)
            self.client.incremental_unassign(ours)
            if self._in_flight is not None:
                wait = 0.0 if self._closed else HANDED_BACK_SECONDS
                self._in_flight.release(partitions, wait)
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
        self._sought |= {p: offsets[p] for p in ours if offsets[p] >= 0}
        self.client.incremental_assign([TopicPartition(*p, offsets[p]) for p in sorted(ours)])
        if self._on_assigned is not None:
            self._on_assigned(sorted(ours))
