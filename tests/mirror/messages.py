"""Writing and reading the messages of mirrored topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.soak.mirror import end_offsets, read_all

SECONDS = 120.0


class Sent(NamedTuple):
    """A message to write."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 1_700_000_000_000
    headers: list[tuple[str, bytes | None]] | None = None


def create(address: str, topic: str, partitions: int, **configs: str) -> None:
    """Create a topic that keeps old messages: those of `Sent` are older than a usual retention."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    named.setdefault("retention.ms", "-1")
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(SECONDS)


def produce(address: str, topic: str, messages: Iterable[Sent], **properties: Any) -> None:
    producer = Producer({"bootstrap.servers": address, "log_level": 0, **properties})
    for one in messages:
        headers: Any = one.headers
        producer.produce(
            topic,
            one.value,
            one.key,
            partition=one.partition,
            timestamp=one.timestamp,
            headers=headers,
        )
        producer.poll(0)
    assert producer.flush(SECONDS) == 0


def content(message: Message) -> tuple[object, ...]:
    return message.key(), message.value(), message.headers(), message.timestamp()


def wait_for(fact: Callable[[], Any], what: str = "it") -> Any:
    """The first true answer."""
    end = time.monotonic() + SECONDS
    while not (found := fact()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.1)
    return found


def copied(address: str, topic: str, index: int, count: int) -> list[Message]:
    """The messages of a partition, once there are `count`."""

    def enough() -> list[Message] | None:
        there = end_offsets(address, topic).get(index, -1)
        return None if there < count else read_all(address, topic, index)

    found: list[Message] = wait_for(enough, f"{topic} partition {index}: {count} messages")
    return found
