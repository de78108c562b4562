"""Consumer groups through the clients: sharing, handing over, committing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.broker.clients import DEADLINE, eventually
from tests.broker.conftest import kept_address, start_broker

# kafka-python reads its schemas in a way that Python deprecates
pytestmark = [
    pytest.mark.contract,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


@pytest.fixture
def shared(address: str, new_name: Callable[[], str]) -> str:
    """A topic with four partitions and 25 messages in each."""
    name = new_name()
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(DEADLINE)
    producer = Producer({"bootstrap.servers": address})
    for number in range(100):
        producer.produce(name, b"%d" % number, partition=number % 4)
    assert producer.flush(DEADLINE) == 0
    return name


def consumer_of(address: str, group: str, **options: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 60_000,  # longer than anybody here stands still
            "heartbeat.interval.ms": 200,
        }
        | options
    )


def read(consumers: list[Consumer], done: Callable[[], bool], seen: list[bytes]) -> None:
    end = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < end, "the group did not get there"
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None
                seen.append(message.value() or b"")


def owned(consumers: list[Consumer]) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


def test_two_consumers_share_and_one_takes_over(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    one, two = consumer_of(address, group), consumer_of(address, group)
    seen: list[bytes] = []
    one.subscribe([shared])
    read([one], lambda: len(seen) == 100, seen)
    one.commit(asynchronous=False)
    two.subscribe([shared])
    read([one, two], lambda: owned([one, two]) == [2, 2], seen)
    assert len(seen) == 100, "nothing is read twice"
    one.close()
    read([two], lambda: owned([two]) == [4], seen)
    two.close()
    assert sorted(map(int, seen)) == list(range(100))


def test_a_member_that_dies_is_replaced_after_its_session(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    code = (
        "import sys; from confluent_kafka import Consumer\n"
        "c = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2],"
        " 'session.timeout.ms': 1500, 'heartbeat.interval.ms': 300})\n"
        "c.subscribe([sys.argv[3]])\n"
        "while True:\n"
        "    c.poll(0.1)\n"
        "    print(len(c.assignment()), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, address, group, shared], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        end = time.monotonic() + DEADLINE
        try:
            while child.stdout.readline().strip() != "4":
                assert time.monotonic() < end, "the child got no partitions"
        finally:
            child.kill()
    heir = consumer_of(address, group, **{"session.timeout.ms": 1500})
    heir.subscribe([shared])
    read([heir], lambda: owned([heir]) == [4], [])
    heir.close()


def test_a_static_member_comes_back_without_disturbing(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    one = consumer_of(address, group, **{"group.instance.id": "one"})
    two = consumer_of(address, group, **{"group.instance.id": "two"})
    for consumer in (one, two):
        consumer.subscribe([shared])
    read([one, two], lambda: owned([one, two]) == [2, 2], [])
    before = {(p.topic, p.partition) for p in two.assignment()}
    two.close()
    again = consumer_of(address, group, **{"group.instance.id": "two"})
    again.subscribe([shared])
    read([one, again], lambda: owned([one, again]) == [2, 2], [])
    assert {(p.topic, p.partition) for p in again.assignment()} == before
    one.close()
    again.close()


def test_a_group_goes_on_where_it_committed(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    first = consumer_of(address, group)
    seen: list[bytes] = []
    first.subscribe([shared])
    read([first], lambda: len(seen) == 40, seen)
    first.commit(asynchronous=False)
    first.close()
    second = consumer_of(address, group)
    second.subscribe([shared])
    read([second], lambda: len(seen) == 100, seen)
    second.close()
    assert sorted(map(int, seen)) == list(range(100))


def test_offsets_of_no_group_member_are_kept_with_their_metadata(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    simple = consumer_of(address, group)
    simple.commit(offsets=[TopicPartition(shared, 1, 7, metadata="note")], asynchronous=False)
    [found] = simple.committed([TopicPartition(shared, 1)], timeout=DEADLINE)
    assert (found.offset, found.metadata) == (7, "note")
    [never] = simple.committed([TopicPartition(shared, 2)], timeout=DEADLINE)
    assert never.offset < 0
    simple.close()


def test_groups_are_listed_described_and_deleted(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    admin = AdminClient({"bootstrap.servers": address})
    member = consumer_of(address, group, **{"client.id": "me"})
    member.subscribe([shared])
    read([member], lambda: owned([member]) == [4], [])
    member.commit(offsets=[TopicPartition(shared, 0, 3)], asynchronous=False)
    listed = admin.list_consumer_groups(request_timeout=DEADLINE).result()
    assert group in [g.group_id for g in listed.valid]
    described = admin.describe_consumer_groups([group], request_timeout=DEADLINE)[group].result()
    assert described.state.name == "STABLE"
    [one] = described.members
    assert one.client_id == "me"
    assert len(one.assignment.topic_partitions) == 4
    refused = admin.delete_consumer_groups([group], request_timeout=DEADLINE)[group]
    assert "NON_EMPTY_GROUP" in str(refused.exception())
    member.close()
    empty = admin.describe_consumer_groups([group], request_timeout=DEADLINE)[group].result()
    assert empty.state.name == "EMPTY"
    [offsets] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert [(p.partition, p.offset) for p in offsets.result().topic_partitions] == [(0, 3)]
    admin.delete_consumer_groups([group], request_timeout=DEADLINE)[group].result()
    assert group not in [g.group_id for g in admin.list_consumer_groups().result().valid]


def test_aiokafka_and_kafka_python_share_a_group_with_each_other(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    from aiokafka import AIOKafkaConsumer
    from kafka import KafkaConsumer

    group = new_name()
    # Nobody commits by itself, and no session ends while this machine does something else.
    options: dict[str, Any] = {
        "bootstrap_servers": address,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 60_000,
    }

    async def aio_share() -> int:
        consumer = AIOKafkaConsumer(shared, **options, heartbeat_interval_ms=200)
        await consumer.start()
        try:
            found = 0
            async with asyncio.timeout(DEADLINE):
                while found < 100:
                    batches = await consumer.getmany(timeout_ms=200)
                    found += sum(map(len, batches.values()))
            await consumer.commit()
            return found
        finally:
            await consumer.stop()

    assert asyncio.run(aio_share()) == 100
    follower = KafkaConsumer(shared, **options)
    # kafka-python 3.0 joins a group for nothing when the broker takes long to describe the topic,
    # and drops its share of the assignment after that.
    assert len(follower.partitions_for_topic(shared)) == 4
    found: list[Any] = []

    def joined() -> bool:
        found.extend(follower.poll(200).values())
        return len(follower.assignment()) == 4

    try:
        eventually(joined)
        assert {follower.position(part) for part in follower.assignment()} == {25}
        assert found == [], "all of it was committed by the other client"
    finally:
        follower.close()


def assigned_consumer(address: str, group: str, **options: Any) -> Consumer:
    """A consumer of the protocol in which the broker assigns (KIP-848)."""
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | options
    )


def test_consumers_that_the_broker_assigns_share_and_one_takes_over(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    one, two = assigned_consumer(address, group), assigned_consumer(address, group)
    seen: list[bytes] = []
    one.subscribe([shared])
    read([one], lambda: len(seen) == 100, seen)
    one.commit(asynchronous=False)
    two.subscribe([shared])
    read([one, two], lambda: owned([one, two]) == [2, 2], seen)
    assert len(seen) == 100, "nothing is read twice"
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE)
    assert described.type.name == "CONSUMER"
    assert described.partition_assignor == "uniform"
    assert sorted(len(m.assignment.topic_partitions) for m in described.members) == [2, 2]
    one.close()
    read([two], lambda: owned([two]) == [4], seen)
    assert len(seen) == 100
    committed = two.committed([TopicPartition(shared, index) for index in range(4)], DEADLINE)
    assert [place.offset for place in committed] == [25] * 4
    two.close()


def test_a_group_changes_its_protocol_and_back_while_it_reads(
    address: str, shared: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    old, new = consumer_of(address, group), assigned_consumer(address, group)
    seen: list[bytes] = []
    old.subscribe([shared])
    read([old], lambda: len(seen) == 100, seen)
    old.commit(asynchronous=False)
    new.subscribe([f"^{shared}$"])
    read([old, new], lambda: owned([old, new]) == [2, 2], seen)
    new.close()
    read([old], lambda: owned([old]) == [4], seen)
    assert len(seen) == 100, "offsets stay where they are"
    old.close()


def test_members_that_the_broker_assigns_go_on_after_it_was_killed(tmp_path: Path) -> None:
    address = kept_address()
    broker = start_broker(tmp_path, listen=address)
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic("t", 4, 1)])["t"].result(DEADLINE)
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    members = [assigned_consumer(address, "g", log_level=0) for _ in range(2)]
    seen: list[bytes] = []

    def send_and_read(first: int) -> None:
        for number in range(first, first + 40):
            producer.produce("t", b"%d" % number, partition=number % 4)
        assert producer.flush(DEADLINE) == 0
        read(members, lambda: owned(members) == [2, 2] and len(set(seen)) == first + 40, seen)

    for member in members:
        member.subscribe(["t"])
    send_and_read(0)
    for member in members:
        member.commit(asynchronous=False)
    broker.process.kill()
    broker.stop()
    broker = start_broker(tmp_path, listen=address)
    send_and_read(40)
    for member in members:
        member.close()
    broker.stop()
