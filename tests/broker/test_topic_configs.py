"""Configs that deployment scripts set: taken if they are true here, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import Codec, iter_batches, iter_records
from tests.broker.clients import DEADLINE
from tests.broker.wire import Wire, fetch, fetched

pytestmark = pytest.mark.contract

# What tools set, with a value that would change the meaning, and the reason that a user reads
_NEUTRAL = {
    "min.insync.replicas": ("1", "2", "one replica"),
    "unclean.leader.election.enable": ("false", "true", "no other broker"),
    "message.timestamp.before.max.ms": ("9223372036854775807", "1000", "event times"),
    "file.delete.delay.ms": ("60000", "-1", "removed segment"),
    "index.interval.bytes": ("4096", "8192", "cannot change"),
    "segment.index.bytes": ("10485760", "1024", "smaller"),
    "segment.jitter.ms": ("0", "1000", "random delay"),
    "preallocate": ("false", "true", "grows"),
    "local.retention.ms": ("-2", "1000", "tiered"),
    "remote.storage.enable": ("false", "true", "tiered"),
    "follower.replication.throttled.replicas": ("", "0:1", "no followers"),
    "compression.type": ("lz4", "brotli", "zstd"),
}


@pytest.fixture
def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, str | None]:
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(DEADLINE)
    return {name: entry.value for name, entry in found.items()}


def create(admin: AdminClient, name: str, **configs: str) -> str:
    admin.create_topics([NewTopic(name, 1, 1, config=configs)])[name].result(DEADLINE)
    return name


def test_a_topic_with_every_neutral_config_is_created_and_shows_them(
    admin: AdminClient, new_name: Callable[[], str]
) -> None:
    wanted = {name: value for name, (value, _, _) in _NEUTRAL.items()}
    found = described(admin, ResourceType.TOPIC, create(admin, new_name(), **wanted))
    assert {name: found[name] or "" for name in wanted} == wanted


@pytest.mark.our_broker("the other values have a meaning on Apache Kafka")
@pytest.mark.parametrize("name", _NEUTRAL)
def test_a_value_that_would_change_the_meaning_is_refused_with_the_reason(
    admin: AdminClient, new_name: Callable[[], str], name: str
) -> None:
    _, wrong, reason = _NEUTRAL[name]
    with pytest.raises(KafkaException, match=reason):
        create(admin, new_name(), **{name: wrong})


def incrementally(
    admin: AdminClient, topic: str, operation: AlterConfigOpType, name: str, value: str
) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE)


def test_values_are_appended_to_a_list_and_subtracted(admin: AdminClient, topic: str) -> None:
    def policy() -> set[str]:
        return set((described(admin, ResourceType.TOPIC, topic)["cleanup.policy"] or "").split(","))

    incrementally(admin, topic, AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    assert policy() == {"compact", "delete"}
    incrementally(admin, topic, AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    assert policy() == {"compact", "delete"}
    incrementally(admin, topic, AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")
    assert policy() == {"compact"}
    with pytest.raises(KafkaException, match=r"(?i)list"):
        incrementally(admin, topic, AlterConfigOpType.APPEND, "retention.ms", "1")


@pytest.mark.our_broker("the values are its start options")
def test_the_broker_shows_what_tools_look_for_by_kafkas_names(
    admin: AdminClient, address: str
) -> None:
    found = described(admin, ResourceType.BROKER, "1")
    assert found["advertised.listeners"] == f"PLAINTEXT://{address}"
    assert found["num.partitions"] == "1"
    assert found["log.segment.bytes"] == "100000"
    assert found["min.insync.replicas"] == "1"
    assert {"log.dirs", "node.id", "auto.create.topics.enable", "log.retention.ms"} <= set(found)


_WANTED = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("wanted", _WANTED)
def test_records_are_stored_with_the_codec_of_the_topic(
    admin: AdminClient, address: str, new_name: Callable[[], str], wanted: str
) -> None:
    topic = create(admin, new_name(), **{"compression.type": wanted})
    values = [b"a value that repeats itself, number %d" % number for number in range(300)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": address, "compression.type": codec, "enable.idempotence": True}
        )
        for number, value in enumerate(values):
            producer.produce(topic, value, b"%d" % number, partition=0, headers=[("h", b"v")])
        assert producer.flush(DEADLINE) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while len(found) < 5 * len(values):
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            found.append(message.value())
    consumer.close()
    assert found == values * 5
    with Wire(address) as wire:
        wire.send(ApiKey.FETCH, 11, fetch(topic, 0, 0))
        _, _, data = fetched(wire.receive()[1])
    stored = list(iter_batches(data))
    expected = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    assert {batch.codec for batch in stored} == {expected}
    assert all(len(list(iter_records(data, batch))) for batch in stored)


def test_a_large_batch_is_recompressed_too(
    admin: AdminClient, address: str, new_name: Callable[[], str]
) -> None:
    """It is recompressed in a thread, and its place in the order stays."""
    topic = create(admin, new_name(), **{"compression.type": "zstd"})
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "batch.num.messages": 3000})
    for number in range(9000):
        producer.produce(topic, b"%06d" % number + b"x" * 200, partition=0)
    assert producer.flush(DEADLINE) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < 9000:
        found += [int((message.value() or b"")[:6]) for message in consumer.consume(1000, 1.0)]
    consumer.close()
    assert found == list(range(9000))
