"""A member of a group that a broker balances (Kafka's group protocol).

Rules:

- A background thread polls while the application handles a message. A rebalance therefore does not
  wait for slow handlers, and the member stays in its group while it handles what it has fetched.
- Only the thread that has the turn uses the client and the buffer, so that no message of a
  partition is returned after the partition is lost.
- librdkafka never resets an offset by itself. After a damaged batch it reads on at arbitrary
  offsets, and would then repeat or skip messages without an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from consumer_sdk._application_thread import ApplicationThread
from consumer_sdk._background_poll import BackgroundPoll
from consumer_sdk._damage import is_stale
from consumer_sdk._fetch_buffer import FetchBuffer, FetchLimits
from consumer_sdk._group_trouble import GroupTrouble
from consumer_sdk._handed_out import HandedOut
from consumer_sdk._membership import OnPartitions, Start
from consumer_sdk._message import Partition
from consumer_sdk._message_step import new_step
from consumer_sdk._offsets import RESET_OFFSETS, note_beginning, offsets_of, uncommitted
from consumer_sdk._reachability import close_within
from headworks._kafka.clients import KafkaConsumer
from headworks.errors import UnreachableError, UsageError

_T = TypeVar("_T")
_COMMITTED_SECONDS = 10.0
_MAX_POLL_INTERVAL = "max.poll.interval.ms", 300_000
_RESET = "auto.offset.reset"


class BrokerMembership:
    """A membership in a group that a broker balances (see `Membership`)."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: list[str],
        limits: FetchLimits,
        start: Start,
        on_assigned: OnPartitions | None,
        on_revoked: OnPartitions | None,
    ) -> None:
        self._start, self._on_assigned, self._on_revoked = start, on_assigned, on_revoked
        self._fetched = FetchBuffer(limits)
        self._application = ApplicationThread()
        self.step = new_step(self._fetched.messages, self._application.calls, self.put_back)
        self._application.step = self.step
        self._handed_out = HandedOut(self.step)
        self.hand_over = self._handed_out.hand_over
        self.begin, self.window = self._handed_out.begin, self._handed_out.window
        self.has_lost = self._handed_out.has_lost
        self.processed = self._handed_out.processed
        # Whether assignments are changes, not whole lists: of a cooperative assignor, or KIP-848.
        self._cooperative = properties.get(
            "group.protocol"
        ) == "consumer" or "cooperative" in properties.get("partition.assignment.strategy", "")
        # Where each partition was sent: librdkafka knows no position before the first message.
        self._sought: dict[Partition, int] = {}
        self.closed = False
        # Where a partition begins if its offset is not in the log; None: that is an error.
        self._reset_offset = RESET_OFFSETS.get(properties.get(_RESET, ""))
        if self._reset_offset is not None:
            properties = {**properties, _RESET: "error"}
        self.polls = 0  # how often the application has polled because it asked for a message
        self._is_held = False  # whether fetching is paused because the buffer is full
        self._paused: set[Partition] = set()  # by the application
        self._unused: set[Partition] = set()  # assigned while closing, and not reported
        self._failure: Exception | None = None  # of a background poll, for the application
        self._commits_itself = bool(properties.get("enable.auto.commit"))
        self._max_busy_seconds = int(properties.get(*_MAX_POLL_INTERVAL)) / 1000
        self._trouble = GroupTrouble(properties)
        self.client = KafkaConsumer({**properties, **self._trouble.callbacks})
        changed = {"on_assign": self._assigned, "on_revoke": self._revoked, "on_lost": self._lost}
        try:
            self.client.subscribe(topics, **changed)
        except KafkaException as error:
            raise UsageError(f"librdkafka refuses {topics}: {error.args[0].str()}") from None
        self._poller = BackgroundPoll(self, self._max_busy_seconds)

    @property
    def calls(self) -> int:
        """How often the application has asked for a message."""
        return self.step.asked

    @property
    def assignment(self) -> list[Partition]:
        """See `Membership`."""
        return [] if self.closed else self._application.use(self._assignment)

    def _assignment(self) -> list[Partition]:
        return [Partition(p.topic, p.partition) for p in self.client.assignment()]

    def exchange(self, processed: confluent_kafka.Message | None) -> confluent_kafka.Message | None:
        """See `Membership`."""
        if processed is not None:
            self.processed(processed)
        step = self.step
        step.asked += 1
        turn, messages = self._application.turn, self._fetched.messages
        # Every message takes this path, so the lock is called without a keyword.
        if not turn.acquire(False):
            return None
        try:
            if not messages or step.is_left or self._application.calls:
                return None
            if messages[0].error() is not None:
                return None
            step.current = messages.popleft()
            return step.current
        finally:
            turn.release()

    def next(self, timeout: float) -> confluent_kafka.Message | None:
        """See `Membership`."""
        self.step.asked += 1
        if not self._application.wait_for_turn(timeout):
            return None
        try:
            if self.step.is_left:
                self._return_to_group()
            if self._application.calls:
                self._application.serve()
            messages = self._fetched.messages
            if messages and messages[0].error() is None:
                found: confluent_kafka.Message | None = messages.popleft()
            else:
                found = self._fetch(timeout)
            self.step.current = found
            return found
        finally:
            self._application.release()

    def _fetch(self, timeout: float) -> confluent_kafka.Message | None:
        """Return the next message or error, and fetch if need be."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        deadline = time.monotonic() + timeout
        messages = self._fetched.messages
        while True:
            if not messages:
                if self._is_held:
                    self._is_held = False
                    self._hold()
                self.polls += 1
                self._handed_out.store(self.client)
                self._fetched.fill(self.client, max(0.0, deadline - time.monotonic()))
            found = messages.popleft() if messages else None
            if found is None or not self._has_reset(found):
                return found

    def poll_in_background(self) -> None:
        """Fetch into the buffer while it has room; serve the group in any case."""
        with self._application.in_background() as free:
            if not free or self.closed:
                return
            try:
                if not self._is_held and self._fetched.is_full:
                    self._is_held = True
                    self._hold()
                self._fetched.fill(self.client, 0.0)
                self._handed_out.store(self.client)
            except Exception as error:
                self._failure = error

    def leave_to_group(self) -> None:
        """Return no message after this before the group has said whose it is."""
        self.step.is_left = True

    def _return_to_group(self) -> None:
        """Serve what the group wants first: it may have given the partitions to other members."""
        self._is_held = True
        self._hold()
        while events := self.client.consume(1, 0.0):
            self._fetched.messages.extend(events)
        self.step.is_left = False

    def stay(self) -> None:
        """See `Membership`."""
        self.step.asked += 1  # so that the background thread goes on polling
        self._application.serve()

    def put_back(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""

        def put_back() -> None:
            if self.step.current is message:  # otherwise its new owner repeats it
                self.step.current = None
                self._fetched.messages.appendleft(message)

        self._application.use(put_back)

    def use(self, work: Callable[[confluent_kafka.Consumer], _T]) -> _T:
        """See `Membership`."""
        return self._application.use(lambda: work(self.client))

    def move(self, offsets: Mapping[Partition, int], *, commit: bool) -> None:
        """See `Membership`."""
        places = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]

        def move() -> None:
            self._fetched.discard(set(offsets))
            self._handed_out.forget(offsets)
            self._handed_out.store(self.client)  # first: it would undo the new places
            self._sought.update(offsets)
            for place in places:
                self._seek(place)
            if commit:
                self.client.store_offsets(offsets=places)
                self.client.commit(offsets=places, asynchronous=False)

        self._application.use(move)

    def position(self, partition: Partition) -> int | None:
        """See `Membership`."""
        return self._application.use(lambda: self._position(partition))

    def _position(self, partition: Partition) -> int | None:
        if self._fetched.has(partition):
            return None  # librdkafka counts these as returned
        place = TopicPartition(*partition)
        try:
            offset = self.client.position([place])[0].offset
            if offset < 0 and partition not in self._sought:
                offset = self.client.committed([place], _COMMITTED_SECONDS)[0].offset
        except KafkaException:
            return None
        if offset < 0:
            offset = self._sought.get(partition, offset)
        return offset if offset >= 0 else None

    def resume(self, partition: Partition, offset: int, *, processed: bool) -> None:
        """See `Membership`."""

        def resume() -> None:
            if partition not in self._assignment():
                return  # a rebalance revoked it, and its new owner reads on
            place = TopicPartition(*partition, offset)
            self._fetched.discard({partition})
            self._sought[partition] = offset
            self._seek(place)
            self._handed_out.forget_from(partition, offset)
            if processed and not self._handed_out.is_unfinished(partition):
                self._handed_out.store(self.client)  # before the new place, not after it
                self.client.store_offsets(offsets=[place])

        self._application.use(resume)

    def _seek(self, place: TopicPartition) -> None:
        try:
            self.client.seek(place)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self._assign_again(place)  # librdkafka fetches nothing after an offset was not found

    def _assign_again(self, place: TopicPartition) -> None:
        if self._cooperative:
            self.client.incremental_unassign([place])
            self.client.incremental_assign([place])
        else:
            places = self.client.position(self.client.assignment())
            for each in places:
                if each.offset < 0:
                    at = Partition(each.topic, each.partition)
                    each.offset = self._sought.get(at, each.offset)
            others = [p for p in places if (p.topic, p.partition) != (place.topic, place.partition)]
            self.client.assign([*others, place])
        self._hold()

    def _hold(self) -> None:
        """Pause or resume what is assigned; librdkafka keeps neither in every rebalance."""
        with suppress(KafkaException):  # the client is being closed
            ours = self.client.assignment()
            self.client.resume([] if self._is_held else ours)
            paused = [p for p in ours if self._is_held or (p.topic, p.partition) in self._paused]
            self.client.pause(paused)

    def set_paused(self, partitions: Collection[Partition], *, paused: bool) -> None:
        """See `Membership`."""

        def change() -> None:
            ours = set(partitions) & set(self._assignment())
            if paused:
                for partition, offset in self._fetched.first_offsets(ours).items():
                    self.resume(partition, offset, processed=False)
            self._paused = self._paused | ours if paused else self._paused - ours
            self._hold()

        self._application.use(change)

    def commit(self) -> None:
        """See `Membership`."""

        def commit() -> None:
            self._handed_out.store(self.client)
            self.client.commit(asynchronous=False)

        try:
            self._application.use(commit)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise UnreachableError(f"the offsets were not committed: {error}") from None

    def close(self, timeout: float) -> None:
        """See `Membership`."""
        deadline = time.monotonic() + timeout
        self.closed = True
        self._poller.stop()
        if self._application.wait_for_turn(timeout):
            self._handed_out.store(self.client)
        seconds = max(0.0, deadline - time.monotonic())
        close_within(self.client, self._application, seconds, commit=self._commits_itself)

    def _has_reset(self, event: confluent_kafka.Message) -> bool:
        """Move a partition whose offset is not in the log, if the group wants that."""
        problem = event.error()
        if problem is None or problem.code() != KafkaError._AUTO_OFFSET_RESET:
            return False
        partition = Partition(event.topic() or "", event.partition() or 0)
        if self._fetched.has(partition):
            return True  # librdkafka reads on since then
        position = self._position(partition)
        if position is not None and is_stale(event, position):
            self.resume(partition, position, processed=False)  # librdkafka left it, after damage
        elif self._reset_offset is None:
            return False
        elif partition in self._assignment():
            self._sought[partition] = self._reset_offset
            self._assign_again(TopicPartition(*partition, self._reset_offset))
        return True

    def _assigned(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Begin at the committed offsets, or at `start` if there are none."""
        ours = [Partition(p.topic, p.partition) for p in partitions]
        if self.closed:
            self._unused.update(ours)
            return  # they are revoked at once, and a request would hold up the close
        starts = self._starts(consumer, ours)
        self._sought |= starts
        for p in partitions:
            p.offset = starts.get(Partition(p.topic, p.partition), p.offset)
        (consumer.incremental_assign if self._cooperative else consumer.assign)(partitions)
        note_beginning(consumer, starts, commit=self._commits_itself)
        self._hold()
        on_assigned = self._on_assigned
        if on_assigned is not None:
            self._application.defer(lambda: on_assigned(ours))

    def _starts(
        self, consumer: confluent_kafka.Consumer, partitions: list[Partition]
    ) -> Mapping[Partition, int]:
        """Return where the partitions without a committed offset begin."""
        if isinstance(self._start, datetime):
            fresh = uncommitted(consumer, partitions)
            return offsets_of(consumer, fresh, self._start) if fresh else {}
        if self._reset_offset is not None:
            with suppress(KafkaException, UnreachableError):  # librdkafka then looks, and reports
                fresh = uncommitted(consumer, partitions)
                if self._reset_offset == OFFSET_END:
                    return offsets_of(consumer, fresh, "latest")
                return dict.fromkeys(fresh, self._reset_offset)
        return {}

    def _revoked(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        """Forget partitions, after the application has stored what it processed of them."""
        gone = [Partition(p.topic, p.partition) for p in partitions]
        self._fetched.discard(set(gone))
        self._paused -= set(gone)
        self._sought = {at: offset for at, offset in self._sought.items() if at not in gone}
        used = [partition for partition in gone if partition not in self._unused]
        if (on_revoked := self._on_revoked) is not None and (used or not gone):
            self._application.call(lambda: on_revoked(used), self._max_busy_seconds)
        self._handed_out.take_back(set(gone), self._is_handling, is_closing=self.closed)
        self._handed_out.store(self.client)

    def _lost(self, consumer: object, partitions: list[TopicPartition]) -> None:
        """Report partitions that were taken without asking, and forget them."""
        if partitions and not (self.step.is_left or self.closed):  # the event says why
            self._trouble.lost(partitions)
        self._revoked(consumer, partitions)

    def _is_handling(self) -> bool:
        """Return whether the application's thread, which is not this one, may handle a message."""
        return self._application.is_elsewhere and not self.closed
