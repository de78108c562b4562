"""A broker and its topics, registered in ZooKeeper as a cluster's broker registers itself."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
import fastavro
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headworks._wire import prefix
from headworks._zookeeper import BrokerNode, TopicNode, ZooKeeperSession, paths
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of

BROKER = 1


def register(session: ZooKeeperSession, address: str, broker: int = BROKER) -> None:
    """Say that a broker lives, for as long as the session lasts."""
    host, _, port = address.rpartition(":")
    session.client.ensure_path(paths.BROKERS)
    session.client.ensure_path(paths.TOPICS)
    node = BrokerNode(host, int(port)).dump()
    session.client.create(paths.broker(broker), node, ephemeral=True)


def declare(session: ZooKeeperSession, address: str, topic: str, partitions: int) -> None:
    """Create a topic at the broker, and say so in ZooKeeper."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)
    session.client.create(paths.topic(topic), TopicNode((BROKER,) * partitions).dump())


_SCHEMA = {
    "type": "record",
    "name": "Numbered",
    "namespace": "tests.decentralized",
    "fields": [{"name": "number", "type": "long"}],
}


def encoder(registry: str, topic: str) -> Callable[[int], bytes]:
    """Numbers to the values of messages, in a schema that is registered for the topic."""
    head = prefix(RegistryClient(registry).register(subject_of(topic), json.dumps(_SCHEMA)).id)

    def encode(number: int) -> bytes:
        value = io.BytesIO()
        fastavro.schemaless_writer(value, _SCHEMA, {"number": number})
        return head + value.getvalue()

    return encode


def fill(address: str, registry: str, topic: str, numbers: Iterable[int], partitions: int) -> None:
    """Send numbered events, in turn to each partition; they are all on disk when it returns."""
    encode = encoder(registry, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number in numbers:
        producer.produce(topic, encode(number), partition=number % partitions)
    assert producer.flush(60) == 0


def eventually(what: str, holds: Callable[[], Any], limit: float = 60.0) -> Any:
    """Wait until `holds` gives something true, and return that."""
    deadline = time.monotonic() + limit
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come about in {limit} s"
        time.sleep(0.05)
