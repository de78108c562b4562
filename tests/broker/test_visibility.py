"""A record that was acknowledged is there for everyone who asks afterwards where the log ends.

The clients here use acks=1, which the broker acknowledges before the flush. The flush policy of
these topics never flushes by itself, so nothing but the question can expose the records.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from tests.broker.clients import DEADLINE

pytestmark = pytest.mark.contract

_NEVER = {"flush.ms": "3600000", "flush.messages": "1000000000"}
_TRIES = int(os.environ.get("HEADWORKS_TEST_VISIBILITY_TRIES", "20"))
_numbers = itertools.count()


@pytest.fixture
def unflushed_topic(address: str) -> str:
    """A topic that is flushed only if somebody needs it."""
    name = f"unflushed-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 1, 1, config=_NEVER)])[name].result(DEADLINE)
    return name


@asynccontextmanager
async def clients(address: str) -> AsyncIterator[tuple[AIOKafkaProducer, AIOKafkaConsumer]]:
    """A producer and a consumer with aiokafka's defaults, which are acks=1 and no group."""
    producer = AIOKafkaProducer(bootstrap_servers=address)
    consumer = AIOKafkaConsumer(bootstrap_servers=address)
    await producer.start()
    await consumer.start()
    try:
        yield producer, consumer
    finally:
        await consumer.stop()
        await producer.stop()


async def end_and_old_records(address: str, topic: str, tries: int) -> None:
    """Read up to the end of the log, and start at its end, `tries` times."""
    at = TopicPartition(topic, 0)
    async with clients(address) as (producer, consumer):
        consumer.assign([at])
        for number in range(tries):
            begin = 11 * number
            for count in range(10):
                await producer.send_and_wait(topic, b"%d" % (begin + count), partition=0)
            end = (await consumer.end_offsets([at]))[at]
            assert end == begin + 10, f"try {number}: {end - begin} of 10 are there"
            consumer.seek(at, begin)
            found = [await consumer.getone() for _ in range(10)]
            assert [record.offset for record in found] == list(range(begin, end))
            await producer.send_and_wait(topic, b"last", partition=0)
            await consumer.seek_to_end(at)
            assert await consumer.position(at) == begin + 11, f"try {number}: an old record"


def test_the_end_of_the_log_is_after_every_acknowledged_record(
    address: str, unflushed_topic: str
) -> None:
    async def run() -> None:
        async with asyncio.timeout(max(DEADLINE, _TRIES)):
            await end_and_old_records(address, unflushed_topic, _TRIES)

    asyncio.run(run())


def acknowledged(address: str, topic: str, timestamps: list[int]) -> None:
    """Produce one record for each timestamp, with acks=1."""
    producer = Producer({"bootstrap.servers": address, "acks": 1})
    for timestamp in timestamps:
        producer.produce(topic, b"x", partition=0, timestamp=timestamp)
    assert producer.flush(DEADLINE) == 0


@pytest.mark.parametrize(
    ("spec", "offset"),
    [
        (OffsetSpec.latest(), 3),  # type: ignore[no-untyped-call]
        (OffsetSpec.max_timestamp(), 1),  # type: ignore[no-untyped-call]
        (OffsetSpec.for_timestamp(1_600_000_001_500), 1),
        (OffsetSpec.earliest(), 0),  # type: ignore[no-untyped-call]
    ],
)
def test_every_kind_of_question_finds_what_was_acknowledged(
    address: str, unflushed_topic: str, spec: OffsetSpec, offset: int
) -> None:
    acknowledged(address, unflushed_topic, [1_600_000_000_000 + s * 1000 for s in (1, 3, 2)])
    where = ConfluentPartition(unflushed_topic, 0)
    admin = AdminClient({"bootstrap.servers": address})
    assert admin.list_offsets({where: spec})[where].result(DEADLINE).offset == offset


@pytest.mark.parametrize(("before", "start"), [(2, 2), (-1, 3)])
def test_acknowledged_records_can_be_deleted(
    address: str, unflushed_topic: str, before: int, start: int
) -> None:
    acknowledged(address, unflushed_topic, [1_600_000_000_000] * 3)
    where = ConfluentPartition(unflushed_topic, 0, before)
    admin = AdminClient({"bootstrap.servers": address})
    assert admin.delete_records([where])[where].result(DEADLINE).low_watermark == start


def test_a_consumer_may_start_at_an_acknowledged_record(address: str, unflushed_topic: str) -> None:
    """It knows the offset from the producer, and has asked nobody where the log ends."""

    async def run() -> None:
        async with asyncio.timeout(DEADLINE), clients(address) as (producer, consumer):
            for _ in range(3):
                sent = await producer.send_and_wait(unflushed_topic, b"x", partition=0)
            at = TopicPartition(unflushed_topic, 0)
            consumer.assign([at])
            consumer.seek(at, sent.offset)
            assert (await consumer.getone()).offset == sent.offset

    asyncio.run(run())
