"""The messages that the application has, and the offsets of those that it has processed.

Rules:

- A message is processed only while its partition is this member's. The new owner repeats others.
- One message at a time is handed out, until the first is handed over. From then on, each is
  handled beside others, and the offsets follow what is finished without a gap (`_in_flight`).
- Offsets are collected, and stored with the next fetch or before a commit: once for each partition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer_sdk._in_flight import HANDED_BACK_SECONDS, InFlight, epoch_of
from consumer_sdk._message import Partition
from consumer_sdk._message_step import MessageStep

_HANDED_BACK_PAUSE_SECONDS = 0.005


class HandedOut:
    """The messages of one member; `step` has the last one that it returned."""

    def __init__(self, step: MessageStep) -> None:
        self._step = step
        self.processed = step.mark
        self._in_flight: InFlight | None = None  # None while it is one message at a time
        # The next offset and the leader epoch behind what is finished beside others.
        self._finished: dict[Partition, tuple[int, int]] = {}
        self._handing = threading.Lock()  # while the current message is handed over

    def hand_over(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""
        if self._in_flight is None:
            self._in_flight = InFlight(self._note_finished)
            self._step.beside = self._in_flight.finish
        with self._handing:
            if self._step.current is message:  # else a rebalance revoked it
                self._in_flight.add(message)
                self._step.current = None

    def has_lost(self, message: confluent_kafka.Message) -> bool:
        """See `Membership`."""
        return self._step.current is not message

    def begin(self, message: confluent_kafka.Message) -> bool:
        """See `Membership`."""
        return self._in_flight is not None and self._in_flight.begin(message)

    def _note_finished(self, partition: Partition, offset: int, leader_epoch: int) -> None:
        self._finished[partition] = offset + 1, leader_epoch

    def store(self, client: confluent_kafka.Consumer) -> None:
        """Store the offset of the last message that was processed in each partition."""
        places: dict[Partition, TopicPartition] = {}
        last = {(raw.topic(), raw.partition()): raw for raw in self._step.take_processed()}
        for (topic, number), message in last.items():
            partition = Partition(topic or "", number or 0)
            place = (message.offset() or 0) + 1, epoch_of(message)
            places[partition] = _place(partition, *place)
        while self._finished:  # they are behind those above
            partition, place = self._finished.popitem()
            places[partition] = _place(partition, *place)
        for each in places.values():
            try:
                client.store_offsets(offsets=[each])
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:  # a rebalance revoked the partition
                    raise

    def is_unfinished(self, partition: Partition) -> bool:
        """Return whether a message of a partition is handled beside others."""
        return self._in_flight is not None and self._in_flight.has(partition)

    def window(self, partition: tuple[str, int]) -> int:
        """See `Membership`."""
        return 0 if self._in_flight is None else self._in_flight.window(partition)

    def forget_from(self, partition: Partition, offset: int) -> None:
        """Forget the messages that are fetched again, because reading goes on at an offset."""
        if self._in_flight is not None:
            self._in_flight.forget_from(partition, offset)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Forget partitions at once: reading goes on elsewhere in them."""
        if self._in_flight is not None:
            self._in_flight.release(partitions, 0.0)

    def take_back(
        self, gone: Collection[Partition], is_busy: Callable[[], bool], *, is_closing: bool
    ) -> None:
        """Wait a moment for the messages that are handled, and forget the partitions.

        `is_busy` returns whether another thread can be handling the current message. A member that
        is closing waits for none. Beside others, the current message is not handled yet, and a
        wait for it would let handlers begin more messages that their new owner repeats.
        """
        seconds = 0.0 if is_closing else HANDED_BACK_SECONDS
        step, deadline = self._step, time.monotonic() + seconds
        message = step.current
        if message is not None and (message.topic(), message.partition()) in gone:
            while (
                self._in_flight is None
                and step.current is message
                and time.monotonic() < deadline
                and is_busy()
            ):
                time.sleep(_HANDED_BACK_PAUSE_SECONDS)
            with self._handing:
                if step.current is message:
                    step.current = None
        if self._in_flight is not None:
            self._in_flight.release(gone, max(0.0, deadline - time.monotonic()))


def _place(partition: Partition, offset: int, leader_epoch: int) -> TopicPartition:
    return TopicPartition(*partition, offset, leader_epoch=leader_epoch)
