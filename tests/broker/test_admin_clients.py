"""Topics, partitions, configs and records as administration clients change them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.broker.clients import CONSUMERS, DEADLINE, PRODUCERS, Message, eventually
from tests.interop.in_place import is_apache_kafka

# kafka-python reads its schemas in a way that Python deprecates
pytestmark = [
    pytest.mark.contract,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


@pytest.fixture
def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def at_once(holds: Callable[[], bool]) -> None:
    """What our broker tells of as soon as it has answered; Apache Kafka may do so later."""
    if is_apache_kafka():
        eventually(holds)
    else:
        assert holds()


def partitions(admin: AdminClient, topic: str) -> int:
    """How many a broker tells of."""
    found = admin.list_topics(timeout=DEADLINE).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def test_topics_come_and_go(admin: AdminClient, address: str, new_name: Callable[[], str]) -> None:
    name = new_name()
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(DEADLINE)
    at_once(lambda: partitions(admin, name) == 3)
    PRODUCERS["confluent-kafka"](address, name, [Message(b"k", b"old")], "none")
    admin.delete_topics([name])[name].result(DEADLINE)
    at_once(lambda: partitions(admin, name) == 0)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE)
    PRODUCERS["kafka-python"](address, name, [Message(b"k", b"new")], "none")
    assert [m.value for m in CONSUMERS["confluent-kafka"](address, name, 1)] == [b"new"]


@pytest.mark.parametrize(
    ("topic", "partitions", "replicas", "config", "error"),
    [
        ("bad name", 1, 1, {}, "TOPIC_EXCEPTION"),
        (".", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("a" * 250, 1, 1, {}, "TOPIC_EXCEPTION"),
        ("fine", 1, 3, {}, "INVALID_REPLICATION_FACTOR"),
        pytest.param(
            *("fine", 10_001, 1, {}, "INVALID_PARTITIONS"),
            marks=pytest.mark.our_broker("the limit is ours"),
        ),
        ("fine", 0, 1, {}, "INVALID_PARTITIONS"),
        ("fine", 1, 1, {"no.such.config": "1"}, "INVALID_CONFIG"),
        ("fine", 1, 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        ("fine", 1, 1, {"cleanup.policy": "shred"}, "INVALID_CONFIG"),
    ],
)
def test_topics_that_cannot_be(
    admin: AdminClient,
    topic: str,
    partitions: int,
    replicas: int,
    config: dict[str, str],
    error: str,
) -> None:
    made = admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic]
    with pytest.raises(KafkaException, match=error):
        made.result(DEADLINE)
    assert "fine" not in admin.list_topics(timeout=DEADLINE).topics


def test_creating_twice_deleting_nothing_and_only_asking(
    admin: AdminClient, topic: str, new_name: Callable[[], str]
) -> None:
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topics(["nobody-made-me"])["nobody-made-me"].result(DEADLINE)
    name = new_name()
    admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(DEADLINE)
    assert name not in admin.list_topics(timeout=DEADLINE).topics


def test_partitions_grow(admin: AdminClient, topic: str, address: str) -> None:
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(DEADLINE)
    at_once(lambda: partitions(admin, topic) == 3)
    producer = Producer({"bootstrap.servers": address})
    errors: list[object] = []
    producer.produce(topic, b"x", partition=2, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(DEADLINE) == 0
    assert errors == [None]
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(DEADLINE)


def configs(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(DEADLINE)
    return found


def test_configs_are_shown_changed_and_reset(admin: AdminClient, topic: str) -> None:
    before = configs(admin, ResourceType.TOPIC, topic)
    assert before["retention.ms"].value == "604800000"
    assert before["retention.ms"].is_default

    def change(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE)

    def retention() -> str | None:
        return configs(admin, ResourceType.TOPIC, topic)["retention.ms"].value

    change(AlterConfigOpType.SET, "5000")
    at_once(lambda: retention() == "5000")
    change(AlterConfigOpType.DELETE, None)
    at_once(lambda: retention() == "604800000")
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        change(AlterConfigOpType.SET, "-2")
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        configs(admin, ResourceType.TOPIC, "nobody-made-me")


@pytest.mark.our_broker("the names of a broker's own configs are its own")
def test_topic_defaults_are_the_brokers_start_options(admin: AdminClient, topic: str) -> None:
    assert configs(admin, ResourceType.TOPIC, topic)["segment.bytes"].value == "100000"
    assert configs(admin, ResourceType.BROKER, "1")["log.flush.interval.ms"].is_read_only


def test_a_topics_message_limit_and_append_time_are_obeyed(
    admin: AdminClient, address: str, new_name: Callable[[], str]
) -> None:
    name = new_name()
    config = {"max.message.bytes": "1000", "message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(DEADLINE)
    PRODUCERS["aiokafka"](address, name, [Message(b"k", b"v", timestamp=1000)], "none")
    for consumer in ("confluent-kafka", "aiokafka", "kafka-python"):
        [found] = CONSUMERS[consumer](address, name, 1)
        assert found.timestamp > 1_700_000_000_000, consumer
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": address})
    producer.produce(name, b"x" * 2000, on_delivery=lambda e, _: errors.append(e and e.name()))
    assert producer.flush(DEADLINE) == 0
    assert errors == ["MSG_SIZE_TOO_LARGE"]


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, address: str, topic: str) -> None:
    PRODUCERS["confluent-kafka"](
        address, topic, [Message(b"%d" % n, b"v") for n in range(9)], "none"
    )
    part = TopicPartition(topic, 0, 6)
    assert admin.delete_records([part])[part].result(DEADLINE).low_watermark == 6
    earliest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()})  # type: ignore[no-untyped-call]
    [found] = [future.result(DEADLINE) for future in earliest.values()]
    assert found.offset == 6
    beyond = TopicPartition(topic, 0, 99)
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records([beyond])[beyond].result(DEADLINE)


def test_the_cluster_is_described(admin: AdminClient) -> None:
    cluster = admin.describe_cluster(request_timeout=DEADLINE).result()
    assert len(cluster.nodes) == 1
    assert len(cluster.cluster_id) == 22


def test_aiokafka_administers(address: str, new_name: Callable[[], str]) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin import NewTopic as AioTopic

    name = new_name()

    async def listed(client: AIOKafkaAdminClient, wanted: bool) -> None:
        end = time.monotonic() + (DEADLINE if is_apache_kafka() else 0)
        while (name in await client.list_topics()) != wanted:
            assert time.monotonic() < end, f"the topic is {'not ' * wanted}listed"
            await asyncio.sleep(0.05)

    async def run() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=address)
        await client.start()
        try:
            await client.create_topics([AioTopic(name, 2, 1)])
            await listed(client, True)
            await client.list_consumer_groups()
            await client.delete_topics([name])
            await listed(client, False)
        finally:
            await client.close()

    asyncio.run(run())


def test_kafka_python_administers(address: str, new_name: Callable[[], str]) -> None:
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as PyTopic

    name = new_name()
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        client.create_topics([PyTopic(name, 2, 1)])
        at_once(lambda: name in client.list_topics())
        client.describe_cluster()
        client.delete_topics([name])
        at_once(lambda: name not in client.list_topics())
    finally:
        client.close()
