"""The APIs that user interfaces for Kafka ask for: pages of topics, resources, reassignments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from tests.broker.clients import DEADLINE, eventually
from tests.broker.wire import Wire, kind

pytestmark = pytest.mark.contract

_ALTER_REASSIGNMENTS, _LIST_REASSIGNMENTS, _LIST_CONFIGS, _DESCRIBE_PARTITIONS = 45, 46, 74, 75


@pytest.fixture
def topics(address: str, new_name: Callable[[], str]) -> list[str]:
    """Three topics with 3, 1, and 2 partitions, in the order of their names."""
    names = sorted(new_name() for _ in range(3))
    admin = AdminClient({"bootstrap.servers": address})
    created = admin.create_topics(
        [NewTopic(name, count, 1) for name, count in zip(names, (3, 1, 2), strict=True)]
    )
    for future in created.values():
        future.result(DEADLINE)
    with Wire(address) as wire:
        eventually(lambda: not any(topic.error_code for topic in page(wire, names, 2000).topics))
    return names


def page(wire: Wire, names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> Any:
    asked = kind(_DESCRIBE_PARTITIONS, 0, "request", "TopicRequest")
    at = kind(_DESCRIBE_PARTITIONS, 0, "request", "Cursor")
    return wire.ask(
        _DESCRIBE_PARTITIONS,
        0,
        topics=tuple(asked(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None if cursor is None else at(topic_name=cursor[0], partition_index=cursor[1]),
    )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 2000])
def test_pages_hold_every_partition_once(address: str, topics: list[str], limit: int) -> None:
    found, cursor = [], None
    with Wire(address) as wire:
        while True:
            one = page(wire, list(reversed(topics)), limit, cursor)
            parts = [(t.name, p.partition_index) for t in one.topics for p in t.partitions]
            assert len(parts) <= limit
            assert all(t.topic_id is not None and not t.error_code for t in one.topics)
            found += parts
            if one.next_cursor is None:
                break
            cursor = one.next_cursor.topic_name, one.next_cursor.partition_index
    counts = zip(topics, (3, 1, 2), strict=True)
    assert found == [(name, index) for name, count in counts for index in range(count)]


def test_all_topics_are_described_and_a_missing_one_is_not_created(
    address: str, topics: list[str], new_name: Callable[[], str]
) -> None:
    with Wire(address) as wire:
        every = page(wire, [], 2000)
        assert set(topics) <= {topic.name for topic in every.topics}
        missing = new_name()
        for _ in range(2):
            [topic] = page(wire, [missing], 2000).topics
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [part] = page(wire, topics[1:2], 2000).topics[0].partitions
        assert (part.leader_id, part.replica_nodes, part.isr_nodes) == (1, (1,), (1,))
        assert (part.eligible_leader_replicas, part.last_known_elr) == ((), ())


def test_resources_with_configs_are_listed_by_type(address: str, topics: list[str]) -> None:
    def listed(version: int, *types: int) -> dict[int, set[str]]:
        fields = {"resource_types": types} if version else {}
        found: dict[int, set[str]] = {}
        with Wire(address) as wire:
            for one in wire.ask(_LIST_CONFIGS, version, **fields).config_resources:
                found.setdefault(getattr(one, "resource_type", 16), set()).add(one.resource_name)
        return found

    eventually(lambda: set(topics) <= listed(1)[2])
    assert listed(1)[4] == {"1"}
    assert set(listed(1, 2)) == {2}
    assert listed(1, 4) == {4: {"1"}}
    assert listed(0) == listed(1, 16) == {}, "there are no metrics that a client could send"


def test_no_partition_is_ever_moved(address: str, topics: list[str]) -> None:
    topic = kind(_ALTER_REASSIGNMENTS, 1, "request", "ReassignableTopic")
    part = kind(_ALTER_REASSIGNMENTS, 1, "request", "ReassignablePartition")
    wanted = {0: (1,), 1: (2,), 2: (1, 2)}
    with Wire(address) as wire:
        found = wire.ask(_LIST_REASSIGNMENTS, 0, topics=None)
        assert (found.error_code, found.topics) == (ErrorCode.NONE, ())
        [answer] = wire.ask(
            _ALTER_REASSIGNMENTS,
            1,
            topics=(
                topic(
                    name=topics[0],
                    partitions=(
                        *(part(partition_index=i, replicas=to) for i, to in wanted.items()),
                        part(partition_index=1, replicas=None),
                        part(partition_index=9, replicas=(1,)),
                    ),
                ),
            ),
        ).responses
    assert [one.error_code for one in answer.partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.our_broker("Kafka serves these")
def test_what_the_docs_call_missing_is_not_announced(address: str) -> None:
    missing = {
        *(29, 30, 31, 50, 51),  # ACLs, users of SCRAM
        *(43, 48, 49),  # elections of leaders, quotas
        *(55, 57),  # the metadata quorum, features
        *(76, 77, 78, 79, 88, 89),  # share groups, groups of Streams
    }
    with Wire(address) as wire:
        announced = wire.ask(
            ApiKey.API_VERSIONS, 3, client_software_name="test", client_software_version="1"
        ).api_keys
    assert not missing & {one.api_key for one in announced}


@pytest.mark.our_broker("Kafka refuses the second")
def test_names_that_differ_in_a_dot_alone_may_both_exist(
    address: str, new_name: Callable[[], str]
) -> None:
    stem = new_name()
    admin = AdminClient({"bootstrap.servers": address})
    for name in (f"{stem}.b", f"{stem}_b"):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE)
