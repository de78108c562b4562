"""The messages that a member has fetched and not returned yet, within limits.

Rules: the first message is waited for, and only what has already arrived is taken behind it. The
bytes are looked at between growing steps, so one step may exceed their limit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import confluent_kafka

from consumer_sdk._message import Partition

_GROWTH_FACTOR = 8  # of the steps in which a buffer is filled


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of a buffer; one that has reached any of them is full."""

    messages: int = 500
    bytes: int = 16 << 20  # of the values
    seconds: float = 1.0  # since its first message was fetched


class FetchBuffer:
    """Fetched messages in their order; `messages` holds the next one first."""

    def __init__(self, limits: FetchLimits) -> None:
        self.messages: deque[confluent_kafka.Message] = deque()
        self._limits = limits
        self._since = 0.0  # the monotonic time at which the buffer was last filled from empty

    @property
    def is_full(self) -> bool:
        """Whether fetching must pause."""
        limits, held = self._limits, self.messages
        return bool(held) and (
            len(held) >= limits.messages
            or sum(map(len, held)) >= limits.bytes
            or time.monotonic() - self._since >= limits.seconds
        )

    def fill(self, client: confluent_kafka.Consumer, timeout: float) -> None:
        """Fetch up to the limits; wait up to `timeout` seconds for the first message.

        At least one event is always taken, because a poll also serves the group.
        """
        held, limits = self.messages, self._limits
        size, wanted = sum(map(len, held)), 1
        most = limits.messages - len(held)
        was_empty = not held
        while wanted > 0:
            found = client.consume(wanted, timeout)
            held.extend(found)
            most -= len(found)
            if len(found) < wanted or most <= 0:
                break
            size += sum(map(len, found))  # not of the last step, which is the largest
            if size >= limits.bytes:
                break
            timeout, wanted = 0.0, min(most, _GROWTH_FACTOR * wanted)
        if was_empty:
            self._since = time.monotonic()

    def has(self, partition: Partition) -> bool:
        """Return whether the buffer holds messages of a partition, errors aside."""
        return any((m.topic(), m.partition()) == partition and not m.error() for m in self.messages)

    def first_offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offset of the first message of each of these partitions that has one."""
        found: dict[Partition, int] = {}
        for m in self.messages:
            place = Partition(m.topic() or "", m.partition() or 0)
            if m.error() is None and place in partitions:
                found.setdefault(place, m.offset() or 0)
        return found

    def discard(self, partitions: Collection[Partition]) -> None:
        """Discard the messages and errors of partitions."""
        kept = [m for m in self.messages if (m.topic(), m.partition()) not in partitions]
        self.messages.clear()
        self.messages.extend(kept)
