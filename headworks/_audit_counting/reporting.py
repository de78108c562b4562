"""Counts to audit events: the counts of this process, and those that a killed process left.

Rules: an increment is in the counter file before it is sent. It is marked as published when the
broker has acknowledged it. Until then it is sent again under the same id, and never under another.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.counters import CounterFile, PendingIncrement, leftover_files
from headworks._audit_counting.event import AuditCount
from headworks._kafka.clients import KafkaProducer
from headworks._kafka.partitioner import KeylessPartitioner
from headworks._wire import prefix
from headworks.codec import event_type
from headworks.registry_client._schema_ids import EventSchemaIds

Send = Callable[[bytes, Callable[[object, object], None]], bool]


class AuditReporter:
    """Publishes the counter files of `folder` as `tier`.

    `send(value, on_delivery)` enqueues a message for the audit topic; it returns False if the queue
    is full.
    """

    def __init__(
        self, folder: Path, *, tier: str, application: str, ids: EventSchemaIds, send: Send
    ) -> None:
        self._folder = folder
        self._tier = tier
        self._application = application
        self._ids = ids
        self._send = send
        self._host = socket.gethostname()
        self._leftovers: list[CounterFile] = []  # files of dead processes, locked
        self._in_flight: set[str] = set()  # ids of increments without a delivery report
        self._prefix: bytes | None = None  # magic byte and schema id of the audit event

    @property
    def waiting(self) -> bool:
        """Whether an event was sent that is not acknowledged yet."""
        return bool(self._in_flight)

    def report(self, counters: CounterFile) -> int:
        """Send the unpublished counts of `counters`; return the number of events sent."""
        return self._send_all(counters, owner_died=False)

    def report_leftovers(self) -> int:
        """Send the counts of dead processes of the folder; return the number of events sent."""
        self._leftovers += leftover_files(self._folder)
        return sum(self._send_all(file, owner_died=True) for file in self._leftovers)

    def close(self) -> None:
        """Remove the leftover files whose counts are published; the next process takes the rest."""
        for file in self._leftovers:
            file.close(remove=file.settled())
        self._leftovers.clear()

    def _send_all(self, counters: CounterFile, *, owner_died: bool) -> int:
        sent = 0
        for increment in counters.increments(owner_died=owner_died):
            if increment.id in self._in_flight:
                continue
            value = self._value(self._event(increment))
            self._in_flight.add(increment.id)
            if not self._send(value, partial(self._acknowledged, counters, increment)):
                self._in_flight.discard(increment.id)
                break  # the queue is full: the next report sends the rest
            sent += 1
        return sent

    def _acknowledged(
        self, counters: CounterFile, increment: PendingIncrement, error: object, _message: object
    ) -> None:
        self._in_flight.discard(increment.id)
        if error is None:
            counters.published(increment)

    def _value(self, event: AuditCount) -> bytes:
        kind = event_type(AuditCount)
        if self._prefix is None:
            self._prefix = prefix(self._ids.find(AuditCount))
        return self._prefix + kind.encode(event)

    def _event(self, increment: PendingIncrement) -> AuditCount:
        return AuditCount(
            id=increment.id,
            topic=increment.topic,
            tier=self._tier,
            window_start=datetime.fromtimestamp(increment.window_start / 1000, UTC),
            counts=increment.counts,
            bytes=increment.bytes,
            host=self._host,
            application=self._application,
            sent_at=datetime.now(UTC),
        )


def audit_topic_sender(client: KafkaProducer, partitioner: KeylessPartitioner) -> Send:
    """Return a function that sends to the audit topic by `client`."""

    def send(value: bytes, on_delivery: Callable[[object, object], None]) -> bool:
        try:
            to = partitioner.partition(AUDIT_TOPIC)
            client.produce(AUDIT_TOPIC, value, partition=to, on_delivery=on_delivery)
        except (BufferError, KafkaException):
            return False
        return True

    return send
