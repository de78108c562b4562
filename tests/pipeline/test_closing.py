"""A consumer that closes just as its group gives it partitions: it ends, and reports none."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from functools import partial
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from consumer_sdk import Consumer, Partition
from headworks._kafka import clients
from headworks._kafka.clients import KafkaConsumer, KafkaProducer
from headworks._server.child_process import Service
from tests.consumer_sdk.zookeeper_group.cluster import encoder
from tests.damage import produce_batches
from tests.soak import slow_handlers
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e

_LONG_SESSION = {"session.timeout.ms": 300_000}  # else a slow machine ends those that stay


def test_no_member_waits_for_ever(broker: Service) -> None:
    slow_handlers.create(broker.address, "closing", 2)
    program = [sys.executable, "-m", "tests.pipeline.closing_members", broker.address, "closing"]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "57\n"), done.stderr


def test_partitions_that_come_too_late_are_not_reported(broker: Service, registry: Service) -> None:
    topic = "closed-before-given"
    slow_handlers.create(broker.address, topic, 2)
    seen: list[tuple[str, list[Partition]]] = []
    consumer: Consumer[dict[str, Any]] = Consumer(
        topics=[topic],
        group=topic,
        bootstrap=broker.address,
        registry=registry.url,
        on_assigned=lambda partitions: seen.append(("gained", partitions)),
        on_revoked=lambda partitions: seen.append(("lost", partitions)),
    )
    consumer._membership._poller.stop()  # type: ignore[attr-defined]  # nothing serves the group
    admin = AdminClient({"bootstrap.servers": broker.address})

    def is_given() -> bool:
        found = admin.describe_consumer_groups([topic])[topic].result(60)
        return bool(found.state == ConsumerGroupState.STABLE)

    until(is_given)
    consumer.close()
    assert seen == []


@pytest.mark.parametrize("static", [False, True])
def test_messages_that_keep_coming_hold_up_no_close(
    broker: Service, static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_LEAVE_SECONDS", math.inf)
    topic = f"keep-coming-{static}"
    slow_handlers.create(broker.address, topic, 2)
    producer = KafkaProducer({"bootstrap.servers": broker.address, "linger.ms": 1})
    ended = threading.Event()

    def produce() -> None:
        while not ended.wait(0.001):
            for _ in range(100):
                producer.produce(topic, b"x" * 10)
            producer.poll(0)

    named = {"group.instance.id": "one"} if static else {}
    consumer = KafkaConsumer(
        {"bootstrap.servers": broker.address, "group.id": topic, "fetch.wait.max.ms": 5, **named}
    )
    consumer.subscribe([topic])
    threads = [threading.Thread(target=each) for each in (produce, consumer.close)]
    threads[0].start()
    try:
        until(lambda: len(consumer.consume(500, 0.5)) == 500)
        threads[1].start()
        threads[1].join(PATIENCE)
        assert not threads[1].is_alive()
    finally:
        ended.set()
        threads[0].join()
        producer.flush(PATIENCE)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("range", _LONG_SESSION),
        ("cooperative", {**_LONG_SESSION, "partition.assignment.strategy": "cooperative-sticky"}),
        ("by-broker", {"group.protocol": "consumer"}),
    ],
)
def test_only_a_static_member_stays_in_its_group(
    broker: Service, registry: Service, kind: str, config: dict[str, Any], static: bool
) -> None:
    """Each of twelve closes while its last commits are under way, each in a group of its own."""
    topic = f"stays-{kind}-{static}"
    produce_batches(broker.address, topic, list(map(encoder(registry.url, topic), range(10))))
    if static:
        config = {**config, "group.instance.id": "one"}
    groups = [f"{topic}-{number}" for number in range(12)]
    for group in groups:
        consumer: Consumer[dict[str, Any]] = Consumer(
            topics=[topic],
            group=group,
            bootstrap=broker.address,
            registry=registry.url,
            config=config,
        )
        until(partial(consumer.poll, 1))
        consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.address})
    described = admin.describe_consumer_groups(groups)
    assert {len(found.result(60).members) for found in described.values()} == {int(static)}
