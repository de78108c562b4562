"""A producer for users' tests: it records events, and needs no broker.

Rules: it raises what Producer raises for a wrong event or a send after close, because it encodes
every event. It never drops, waits, or fails for another reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from headworks.codec import Event, event_type
from headworks.errors import UsageError
from producer_sdk._context import check_headers, check_partition, key_of
from producer_sdk._producer import Producer
from producer_sdk._totals import NO_EVENTS, ProducerTotals

__all__ = ["RecordingProducer", "Sent"]

T = TypeVar("T")
Headers = Mapping[str, bytes | str]


@dataclass(frozen=True, slots=True)
class Sent:
    """One event that was sent, and the message it would have become (without its framing)."""

    event: object
    topic: str
    key: bytes | None
    timestamp: int
    headers: Headers
    value: bytes
    partition: int | None = None  # the one that was given


class RecordingProducer(Producer):
    """Replaces a Producer, and is one for a type checker.

    `sent` holds every message and `events` every event, in order. Tombstones are in `deleted`.
    """

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.deleted: list[tuple[type, bytes]] = []  # the class of the event, and the key
        self._is_closed = False

    @property
    def events(self) -> list[object]:
        """The events sent, in order."""
        return [each.event for each in self.sent]

    def of(self, kind: type[T]) -> list[T]:
        """Return the events of one class, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def assert_sent(self, kind: type[T], count: int | None = None) -> list[T]:
        """Return the events of one class; AssertionError unless there are `count` (None: any)."""
        found = self.of(kind)
        wanted = "at least one" if count is None else str(count)
        if not found if count is None else len(found) != count:
            others = sorted({type(event).__name__ for event in self.events}) or ["nothing"]
            raise AssertionError(
                f"{len(found)} events of {kind.__name__} were sent, expected {wanted}; "
                f"sent was {', '.join(others)}"
            )
        return found

    def send(
        self,
        event: Event,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> bool:
        """Record an event and return True. Raises what Producer.send raises for a wrong event."""
        self._check_open()
        check_headers(headers)
        if partition is not None:
            check_partition(partition)
        kind = event_type(event)
        value = kind.encode(event)
        self.sent.append(
            Sent(
                event=event,
                topic=kind.topic,
                key=(kind.key(event) if kind.key else None) if key is None else key_of(key),
                timestamp=kind.event_time(event) if kind.event_time else int(time.time() * 1000),
                headers=dict(headers or {}),
                value=value,
                partition=partition,
            )
        )
        return True

    async def asend(
        self,
        event: Event,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> bool:
        """Do what `send` does."""
        return self.send(event, key=key, headers=headers, partition=partition)

    def send_and_wait(
        self,
        event: Event,
        timeout: float,  # noqa: ARG002 - Producer's signature; nothing is waited for
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Record an event; return its partition (or 0), and its number in its topic as offset."""
        self.send(event, key=key, headers=headers, partition=partition)
        topic = self.sent[-1].topic
        return partition or 0, sum(each.topic == topic for each in self.sent) - 1

    async def asend_and_wait(
        self,
        event: Event,
        timeout: float,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Do what `send_and_wait` does."""
        return self.send_and_wait(event, timeout, key=key, headers=headers, partition=partition)

    def delete(self, cls: type[Event], key: bytes | str, *, headers: Headers | None = None) -> bool:
        """Record a tombstone in `deleted`, and return True."""
        self._check_open()
        event_type(cls)
        check_headers(headers)
        self.deleted.append((cls, key_of(key)))
        return True

    def flush(self, timeout: float) -> int:  # noqa: ARG002 - Producer's signature
        """Return 0: nothing is ever left."""
        return 0

    async def aflush(self, timeout: float) -> int:
        """Return 0: nothing is ever left."""
        return self.flush(timeout)

    @property
    def totals(self) -> ProducerTotals:
        """The recorded messages, all delivered."""
        number = len(self.sent) + len(self.deleted)
        return replace(NO_EVENTS, attempted=number, delivered=number)

    def counts(self) -> dict[str, int]:
        """Return nothing: nothing is published to an audit."""
        return {}

    def close(self) -> int:
        """Accept no more events; return 0, the number of messages left."""
        self._is_closed = True
        return 0

    async def aclose(self) -> int:
        """Do what `close` does."""
        return self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("the producer is closed", fix="send before close, or make another")
