"""The interface of a group membership, as `Consumer` uses it.

Rules:

- A membership returns raw messages and commits processed ones. It decodes nothing.
- When it loses a partition, it discards the fetched messages of that partition, because another
  member will return them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Literal, Protocol, TypeVar

import confluent_kafka

from consumer_sdk._message import Partition
from consumer_sdk._message_step import MessageStep

OnPartitions = Callable[[list[Partition]], None]
_T = TypeVar("_T")
Start = Literal["earliest", "latest"] | datetime


class Membership(Protocol):
    """A member of a group, as `Consumer` uses it."""

    def use(self, work: Callable[[confluent_kafka.Consumer], _T]) -> _T:
        """Call `work` with the librdkafka client, while no other thread uses it."""

    @property
    def step(self) -> MessageStep:
        """The message that the application has, and the step to the next one."""

    @property
    def closed(self) -> bool:
        """Whether this member has left its group."""

    @property
    def assignment(self) -> list[Partition]:
        """The partitions that this member reads now."""

    def exchange(self, processed: confluent_kafka.Message | None) -> confluent_kafka.Message | None:
        """Mark a message as processed; return the next one if `next` would without waiting."""

    def next(self, timeout: float) -> confluent_kafka.Message | None:
        """Return the next message or error; None if none arrives within `timeout` seconds."""

    def stay(self) -> None:
        """Stay in the group though the application asks for no message; call this every second."""

    def has_lost(self, message: confluent_kafka.Message) -> bool:
        """Return whether the partition of the message that `next` returned last was lost since."""

    def put_back(self, message: confluent_kafka.Message) -> None:
        """Return this message again from the following `next`."""

    def hand_over(self, message: confluent_kafka.Message) -> None:
        """Let this message be handled beside others; `processed` may then come in any order.

        Messages that were handed over are committed up to the first that is not processed. From the
        first call on, that holds for every message of this membership.
        """

    def begin(self, message: confluent_kafka.Message) -> bool:
        """Return whether a message that was handed over may be handled: it may have been lost."""

    def window(self, partition: tuple[str, int]) -> int:
        """Return how many messages were handed over from the first that is not processed on."""

    def processed(self, message: confluent_kafka.Message) -> None:
        """Mark this message as processed, so that it may be committed."""

    def move(self, offsets: Mapping[Partition, int], *, commit: bool) -> None:
        """Continue from these offsets in partitions that are assigned now."""

    def position(self, partition: Partition) -> int | None:
        """Return the offset that `next` would return next, if it is known for certain."""

    def resume(self, partition: Partition, offset: int, *, processed: bool) -> None:
        """Continue from an offset if the partition is assigned.

        With `processed`, everything before it counts as processed.
        """

    def set_paused(self, partitions: Collection[Partition], *, paused: bool) -> None:
        """Return no message of these partitions until they are no longer paused, or lost."""

    def commit(self) -> None:
        """Commit the processed messages; UnreachableError if that fails."""

    def close(self, timeout: float) -> None:
        """Leave the group, within `timeout` seconds if no broker answers."""
