"""Groups and permissions as an administrator sees them, the same as on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headworks._broker.groups import ClassicGroupMember, JoinRequest, subscribed_topics
from headworks._kafka.error_codes import ErrorCode
from tests.broker.clients import DEADLINE, eventually
from tests.broker.wire import Wire, kind

pytestmark = pytest.mark.contract

_OFFSET_DELETE, _LIST_GROUPS, _METADATA, _DESCRIBE_GROUPS, _DESCRIBE_CLUSTER = 47, 16, 3, 15, 60


@pytest.fixture
def member(address: str, topic: str, new_name: Callable[[], str]) -> Iterator[tuple[Consumer, str]]:
    """A consumer that has joined a group and committed an offset of its topic, and the group."""
    group = new_name()
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    yield consumer, group
    consumer.close()


def delete_offset(address: str, group: str, topic: str) -> tuple[int, list[int]]:
    """The error of the request, and that of each partition."""
    asked = kind(_OFFSET_DELETE, 0, "request", "OffsetDeleteRequestTopic")
    part = kind(_OFFSET_DELETE, 0, "request", "OffsetDeleteRequestPartition")
    with Wire(address) as wire:
        found = wire.ask(
            _OFFSET_DELETE,
            0,
            group_id=group,
            topics=(asked(name=topic, partitions=(part(partition_index=0),)),),
        )
    return found.error_code, [p.error_code for t in found.topics for p in t.partitions]


def test_offsets_of_a_topic_that_a_running_group_dropped_are_deleted(
    address: str, topic: str, member: tuple[Consumer, str], new_name: Callable[[], str]
) -> None:
    consumer, group = member
    assert delete_offset(address, group, topic) == (
        ErrorCode.NONE,
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC],
    )
    dropped = new_name()
    Producer({"bootstrap.servers": address}).list_topics(dropped, DEADLINE)
    consumer.commit(offsets=[TopicPartition(dropped, 0, 5)], asynchronous=False)
    assert delete_offset(address, group, dropped) == (ErrorCode.NONE, [ErrorCode.NONE])
    at = [TopicPartition(dropped, 0), TopicPartition(topic, 0)]
    assert [found.offset < 0 for found in consumer.committed(at, DEADLINE)] == [True, False]


def joined(metadata: bytes) -> ClassicGroupMember:
    join = JoinRequest("", None, "c", "h", 10.0, 10.0, "consumer", (("range", metadata),), False)
    return ClassicGroupMember.from_join("m", join, 0.0, lambda _: None)


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0\0", b"\0\0\0\0\0\x05", b"\0\0\0\0\0\x01\0\x09short", b"\0" * 4 + b"\0\1\xff\xff"],
)
def test_a_member_that_does_not_say_what_it_reads_blocks_the_deletion(metadata: bytes) -> None:
    assert subscribed_topics([joined(metadata)]) is None


def test_the_topics_of_all_members_count() -> None:
    first = joined(b"\0\0\0\0\0\x02\0\x01a\0\x01b\0\0\0\0")
    second = joined(b"\0\3\0\0\0\x01\0\x01c\0\0\0\0")
    assert subscribed_topics([first, second]) == {"a", "b", "c"}


def test_a_group_without_members_is_still_a_group_of_consumers(
    address: str, member: tuple[Consumer, str], topic: str, new_name: Callable[[], str]
) -> None:
    consumer, group = member
    consumer.close()
    simple_group = new_name()
    simple = Consumer({"bootstrap.servers": address, "group.id": simple_group})
    simple.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    simple.close()
    admin = AdminClient({"bootstrap.servers": address})
    eventually(
        lambda: (
            admin.describe_consumer_groups([group])[group].result(DEADLINE).state.name == "EMPTY"
        )
    )
    listed = {
        one.group_id: one.is_simple_consumer_group
        for one in admin.list_consumer_groups(request_timeout=DEADLINE).result().valid
    }
    assert listed[group] is False
    assert listed[simple_group] is True


def test_groups_are_listed_by_type(address: str, member: tuple[Consumer, str]) -> None:
    _, group = member
    with Wire(address) as wire:
        for types, there in (((), True), (("classic",), True), (("consumer",), False)):
            found = wire.ask(_LIST_GROUPS, 5, states_filter=(), types_filter=types).groups
            listed = {one.group_id: one.group_type for one in found}
            assert (listed.get(group) == "classic") is there


def bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


def test_operations_are_listed_if_a_client_asks(
    address: str, topic: str, member: tuple[Consumer, str]
) -> None:
    with Wire(address) as wire:
        asked = kind(_METADATA, 9, "request", "MetadataRequestTopic")
        for wanted in (False, True):
            found = wire.ask(
                _METADATA,
                9,
                topics=(asked(name=topic),),
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=wanted,
                include_topic_authorized_operations=wanted,
            )
            [one] = found.topics
            none_given = -(1 << 31)
            of_topic = bits(3, 4, 5, 6, 7, 8, 10, 11) if wanted else none_given
            assert one.topic_authorized_operations == of_topic
            assert (found.cluster_authorized_operations != none_given) is wanted
        group = member[1]
        [described] = wire.ask(
            _DESCRIBE_GROUPS, 5, groups=(group,), include_authorized_operations=True
        ).groups
        assert described.authorized_operations & bits(3, 6, 8) == bits(3, 6, 8)
        cluster = wire.ask(
            _DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True, endpoint_type=1
        )
        assert cluster.cluster_authorized_operations & bits(8) == bits(8)
