"""The interface of a group membership, and the membership in a group that a broker balances.

Rules: a membership returns raw messages and commits processed ones. It decodes nothing. When it
loses a partition, it discards the fetched messages of that partition, because another member will
return them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer_sdk._message import Partition
from consumer_sdk._offsets import offsets_of, uncommitted
from headworks._kafka.clients import KafkaConsumer
from headworks.errors import UnreachableError

__all__ = ["BrokerMembership", "Membership", "OnPartitions", "Start"]

OnPartitions = Callable[[list[Partition]], None]
Start = Literal["earliest", "latest"] | datetime
_MAX_FETCHED_MESSAGES = 500


class Membership(Protocol):
    """A member of a group, as `Consumer` uses it."""

    @property
    def client(self) -> confluent_kafka.Consumer:
        """The librdkafka client, to look up offsets."""

    @property
    def has_buffered(self) -> bool:
        """Whether `next` returns a message without waiting."""

    @property
    def closed(self) -> bool:
        """Whether this member has left its group."""

    @property
    def assignment(self) -> list[Partition]:
        """The partitions that this member reads now."""

    def next(self, timeout: float) -> confluent_kafka.Message | None:
        """Return the next message or error; None if none arrives within `timeout` seconds."""

    def put_back(self, message: confluent_kafka.Message) -> None:
        """Return this message again from the following `next`."""

    def processed(self, message: confluent_kafka.Message) -> None:
        """Mark this message as processed, so that it may be committed."""

    def move(self, offsets: Mapping[Partition, int], *, commit: bool) -> None:
        """Continue from these offsets in partitions that are assigned now."""

    def commit(self) -> None:
        """Commit the processed messages; UnreachableError if that fails."""

    def close(self) -> None:
        """Leave the group."""


class BrokerMembership:
    """A member of a group that a broker balances (Kafka's group protocol)."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: list[str],
        start: Start,
        on_assigned: OnPartitions | None,
        on_revoked: OnPartitions | None,
    ) -> None:
        self._start = start
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        # Fetched messages that were not returned yet, the next one last.
        self._buffer: list[confluent_kafka.Message] = []
        # Whether the assignor is cooperative: assignments are then changes, not whole lists.
        self._cooperative = "cooperative" in properties.get("partition.assignment.strategy", "")
        self.closed = False
        self.client = KafkaConsumer(properties)
        self.client.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked)

    @property
    def has_buffered(self) -> bool:
        """See `Membership`."""
        return bool(self._buffer)

    @property
    def assignment(self) -> list[Partition]:
        """See `Membership`."""
        return [Partition(p.topic, p.partition) for p in self.client.assignment()]

    def next(self, timeout: float) -> confluent_kafka.Message | None:
        """See `Membership`."""
        if not self._buffer:
            self._buffer = self.client.consume(1, timeout)
            if self._buffer:
                self._buffer += self.client.consume(_MAX_FETCHED_MESSAGES, 0)
            self._buffer.reverse()
        return self._buffer.pop() if self._buffer else None

    def put_back(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""
        self._buffer.append(message)

    def processed(self, message: confluent_kafka.Message) -> None:
        """See `Membership`."""
        try:
            self.client.store_offsets(message)
        except KafkaException as error:
            # A rebalance revoked the partition, and its new owner repeats the message.
            if error.args[0].code() != KafkaError._STATE:
                raise

    def move(self, offsets: Mapping[Partition, int], *, commit: bool) -> None:
        """See `Membership`."""
        places = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        self._discard(set(offsets))
        for place in places:
            self.client.seek(place)
        if commit:
            self.client.store_offsets(offsets=places)
            self.client.commit(offsets=places, asynchronous=False)

    def commit(self) -> None:
        """See `Membership`."""
        try:
            self.client.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise UnreachableError(f"the offsets were not committed: {error}") from None

    def close(self) -> None:
        """See `Membership`."""
        self.closed = True
        self.client.close()

    def _discard(self, partitions: set[Partition]) -> None:
        """Discard the fetched messages of partitions."""
        self._buffer = [m for m in self._buffer if (m.topic(), m.partition()) not in partitions]

    def _assigned(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Begin at the committed offsets, or at the time `start` if there are none."""
        ours = [Partition(p.topic, p.partition) for p in partitions]
        if isinstance(self._start, datetime):
            fresh = uncommitted(consumer, ours)
            if fresh:
                places = offsets_of(consumer, fresh, self._start)
                for p in partitions:
                    p.offset = places.get(Partition(p.topic, p.partition), p.offset)
            (consumer.incremental_assign if self._cooperative else consumer.assign)(partitions)
        if self._on_assigned is not None:
            self._on_assigned(ours)

    def _revoked(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        gone = [Partition(p.topic, p.partition) for p in partitions]
        self._discard(set(gone))
        if self._on_revoked is not None:
            self._on_revoked(gone)
