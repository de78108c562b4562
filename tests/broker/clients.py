"""The four clients behind one shape: send messages, read messages, all of them unmodified."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.tools import require
from tests.waiting import until

DEADLINE = 60.0  # for what comes soon, on a machine with other things to do


@dataclass(frozen=True)
class Message:
    """A message as every client sees it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = 1_600_000_000_000


def eventually(holds: Callable[[], bool], within: float = DEADLINE) -> None:
    """Wait until something holds: a cluster tells its nodes of a change after it answers."""
    until(holds, within)


def _confluent_send(address: str, topic: str, messages: Sequence[Message], codec: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "compression.type": codec, "enable.idempotence": True}
    )
    failures: list[Any] = []
    for m in messages:
        producer.produce(
            topic,
            key=m.key,
            value=m.value,
            headers=list(m.headers),
            timestamp=m.timestamp,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(DEADLINE) == 0
    assert failures == []


def _confluent_read(address: str, topic: str, count: int) -> list[Message]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    end = time.monotonic() + DEADLINE
    while len(found) < count and time.monotonic() < end:
        m = consumer.poll(0.5)
        if m is not None:
            assert m.error() is None
            pairs: list[Any] = list(m.headers() or ())
            headers = tuple((name, value or b"") for name, value in pairs)
            found.append(Message(m.key(), m.value(), headers, m.timestamp()[1]))
    consumer.close()
    return found


def _aiokafka_send(address: str, topic: str, messages: Sequence[Message], codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        await producer.start()
        try:
            for m in messages:
                await producer.send(
                    topic, m.value, m.key, 0, timestamp_ms=m.timestamp, headers=list(m.headers)
                )
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(run())


def _aiokafka_read(address: str, topic: str, count: int) -> list[Message]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition

    async def run() -> list[Message]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            found: list[Message] = []
            async with asyncio.timeout(DEADLINE):
                while len(found) < count:
                    m = await consumer.getone()
                    found.append(Message(m.key, m.value, tuple(m.headers), m.timestamp))
            return found
        finally:
            await consumer.stop()

    return asyncio.run(run())


def _kafka_python_send(address: str, topic: str, messages: Sequence[Message], codec: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=address, compression_type=None if codec == "none" else codec
    )
    sent = [
        producer.send(
            topic, m.value, m.key, headers=list(m.headers), partition=0, timestamp_ms=m.timestamp
        )
        for m in messages
    ]
    producer.flush(DEADLINE)
    for future in sent:
        future.get(DEADLINE)
    producer.close()


def _kafka_python_read(address: str, topic: str, count: int) -> list[Message]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(DEADLINE * 1000),
    )
    consumer.assign([TopicPartition(topic, 0)])
    found: list[Message] = []
    for m in consumer:
        found.append(Message(m.key, m.value, tuple(m.headers), m.timestamp))
        if len(found) == count:
            break
    consumer.close()
    return found


def _kcat(address: str, *arguments: str, text: str | None = None) -> str:
    require("kcat")
    done = subprocess.run(
        ["kcat", "-b", address, "-q", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    return done.stdout


def _kcat_send(address: str, topic: str, messages: Sequence[Message], codec: str) -> None:
    for m in messages:
        assert m.value is not None
        options = ["-P", "-t", topic, "-p", "0", "-z", codec]
        if m.key is not None:
            options += ["-k", m.key.decode()]
        for name, value in m.headers:
            options += ["-H", f"{name}={value.decode()}"]
        _kcat(address, *options, text=m.value.decode())


def _kcat_read(address: str, topic: str, count: int) -> list[Message]:
    lines = _kcat(address, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-J")
    found = []
    for line in lines.splitlines():
        m = json.loads(line)
        names, values = m.get("headers", [])[::2], m.get("headers", [])[1::2]
        found.append(
            Message(
                None if m["key"] is None else m["key"].encode(),
                None if m["payload"] is None else m["payload"].encode(),
                tuple((n, v.encode()) for n, v in zip(names, values, strict=True)),
                m["ts"],
            )
        )
    return found


PRODUCERS: dict[str, Callable[[str, str, Sequence[Message], str], None]] = {
    "confluent-kafka": _confluent_send,
    "aiokafka": _aiokafka_send,
    "kafka-python": _kafka_python_send,
    "kcat": _kcat_send,
}
CONSUMERS: dict[str, Callable[[str, str, int], list[Message]]] = {
    "confluent-kafka": _confluent_read,
    "aiokafka": _aiokafka_read,
    "kafka-python": _kafka_python_read,
    "kcat": _kcat_read,
}
