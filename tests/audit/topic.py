"""Writes increments to an audit topic, as the tiers do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

from headworks._audit.increments import Increment
from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.event import AuditCount, OffsetRange
from headworks._cli.stack.stack import RunningStack
from headworks._wire import prefix
from headworks.codec import event_type
from headworks.registry_client import RegistryClient


def encoded(one: Increment, schema_id: int) -> bytes:
    event = AuditCount(
        id=one.id,
        topic=one.topic,
        tier=one.tier,
        window_start=datetime.fromtimestamp(one.window_start / 1000, UTC),
        counts=dict(one.counts),
        bytes=one.bytes,
        host=one.host,
        application=one.application,
        sent_at=datetime.fromtimestamp(one.sent_at / 1000, UTC),
        load_number=one.commit,
        ranges=[
            OffsetRange(partition_number=r.partition, first_offset=r.first, end_offset=r.end)
            for r in one.ranges
        ],
    )
    return prefix(schema_id) + event_type(AuditCount).encode(event)


def publish(
    stack: RunningStack, increments: Iterable[Increment | bytes], *, partition: int = -1
) -> None:
    """Append increments (or any bytes) to the audit topic; -1: the producer takes a partition."""
    found = RegistryClient(stack.registry.url).latest(f"{AUDIT_TOPIC}-value")
    assert found is not None
    errors: list[Any] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": stack.broker.address, "enable.idempotence": True})
    for one in increments:
        value = one if isinstance(one, bytes) else encoded(one, found.id)
        producer.produce(AUDIT_TOPIC, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not errors
