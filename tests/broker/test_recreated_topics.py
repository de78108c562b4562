"""A topic that is recreated is another topic: to producers that know its id, and to groups."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headworks._broker.coordination import CommittedOffset, LocalCoordination, Topic
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from tests.broker.build import batch
from tests.broker.clients import eventually
from tests.broker.test_topic_ids import create, delete
from tests.broker.wire import Wire, kind, reply, request

pytestmark = pytest.mark.e2e

_NEWEST = 10  # of OffsetCommit and OffsetFetch
_BY_ID = 13  # version of Produce from which topics are named by their ids


def produce_body(topic_id: uuid.UUID, *, acks: int = 1, partition: int = 0) -> bytes:
    part = kind(ApiKey.PRODUCE, _BY_ID, "request", "PartitionProduceData")
    topic = kind(ApiKey.PRODUCE, _BY_ID, "request", "TopicProduceData")
    return request(
        ApiKey.PRODUCE,
        _BY_ID,
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=5),
        topic_data=(
            topic(
                topic_id=topic_id,
                partition_data=(part(index=partition, records=bytes(batch(2))),),
            ),
        ),
    )


def produced(body: bytes) -> tuple[uuid.UUID, int, int]:
    """The id, the error, and the base offset of a reply."""
    [topic] = reply(ApiKey.PRODUCE, _BY_ID, body).responses
    [part] = topic.partition_responses
    return topic.topic_id, int(part.error_code), part.base_offset


def commit(wire: Wire, version: int, group: str, offset: int, **named: Any) -> int:
    """The error of a commit for partition 0."""
    part = kind(ApiKey.OFFSET_COMMIT, version, "request", "OffsetCommitRequestPartition")
    topic = kind(ApiKey.OFFSET_COMMIT, version, "request", "OffsetCommitRequestTopic")
    [found] = wire.ask(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(
            topic(
                **named,
                partitions=(
                    part(partition_index=0, committed_offset=offset, committed_metadata="m"),
                ),
            ),
        ),
    ).topics
    assert {name: getattr(found, name) for name in named} == named
    [answer] = found.partitions
    return int(answer.error_code)


def committed(wire: Wire, version: int, group: str, **named: Any) -> list[tuple[Any, int, int]]:
    """The named topic, or all: its id or name, the error, and the offset of partition 0."""
    asked = kind(ApiKey.OFFSET_FETCH, version, "request", "OffsetFetchRequestGroup")
    topic = kind(ApiKey.OFFSET_FETCH, version, "request", "OffsetFetchRequestTopics")
    topics = (topic(**named, partition_indexes=(0,)),) if named else None
    [found] = wire.ask(
        ApiKey.OFFSET_FETCH,
        version,
        groups=(asked(group_id=group, topics=topics),),
        require_stable=True,
    ).groups
    assert found.error_code == ErrorCode.NONE
    return [
        (
            one.topic_id if version >= _NEWEST else one.name,
            int(one.partitions[0].error_code),
            one.partitions[0].committed_offset,
        )
        for one in found.topics
    ]


def test_records_are_produced_by_id(address: str, new_name: Callable[[], str]) -> None:
    with Wire(address) as wire:
        topic_id = create(wire, new_name())
        wire.send(ApiKey.PRODUCE, _BY_ID, produce_body(topic_id, acks=-1))
        assert produced(wire.receive()[1]) == (topic_id, ErrorCode.NONE, 0)
        for _ in range(5):  # alike, so that they are coalesced
            wire.send(ApiKey.PRODUCE, _BY_ID, produce_body(topic_id))
        replies = [produced(wire.receive()[1]) for _ in range(5)]
        assert replies == [(topic_id, ErrorCode.NONE, base) for base in (2, 4, 6, 8, 10)]
        wire.send(ApiKey.PRODUCE, _BY_ID, produce_body(topic_id, partition=7))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produced(wire.receive()[1]) == (topic_id, unknown, -1)


def test_a_producer_of_the_old_topic_writes_nothing_into_the_new_one(
    address: str, new_name: Callable[[], str]
) -> None:
    name = new_name()
    with Wire(address) as wire, Wire(address) as admin:
        old = create(admin, name)
        wire.send(ApiKey.PRODUCE, _BY_ID, produce_body(old))
        assert produced(wire.receive()[1]) == (old, ErrorCode.NONE, 0)
        delete(admin, topic_id=old)
        new = create(admin, name)
        for _ in range(2):  # parsed, and coalesced
            wire.send(ApiKey.PRODUCE, _BY_ID, produce_body(old))
        for _ in range(2):
            assert produced(wire.receive()[1]) == (old, ErrorCode.UNKNOWN_TOPIC_ID, -1)
        wire.send(ApiKey.PRODUCE, _BY_ID, produce_body(new))
        assert produced(wire.receive()[1]) == (new, ErrorCode.NONE, 0)
        wire.send(ApiKey.PRODUCE, _BY_ID, produce_body(old, acks=0))
        assert wire.closed(), "without acks, closing tells the producer"


def test_offsets_are_committed_and_fetched_by_id(address: str, new_name: Callable[[], str]) -> None:
    name, group = new_name(), new_name()
    with Wire(address) as wire:
        topic_id, nobody = create(wire, name), uuid.uuid4()
        assert commit(wire, 9, group, 3, name=name) == ErrorCode.NONE
        assert committed(wire, _NEWEST, group, topic_id=topic_id) == [(topic_id, 0, 3)]
        assert commit(wire, _NEWEST, group, 5, topic_id=topic_id) == ErrorCode.NONE
        assert committed(wire, _NEWEST, group) == [(topic_id, 0, 5)]
        assert committed(wire, 9, group) == [(name, 0, 5)]
        assert committed(wire, 9, group, name=name) == [(name, 0, 5)]
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert commit(wire, _NEWEST, group, 5, topic_id=nobody) == unknown
        assert committed(wire, _NEWEST, group, topic_id=nobody) == [(nobody, unknown, -1)]


def test_offsets_of_the_old_topic_are_not_the_new_ones(
    address: str, new_name: Callable[[], str]
) -> None:
    name, group = new_name(), new_name()
    with Wire(address) as wire:
        old = create(wire, name)
        assert commit(wire, _NEWEST, group, 100, topic_id=old) == ErrorCode.NONE
        delete(wire, topic_id=old)
        new = create(wire, name)
        assert committed(wire, _NEWEST, group, topic_id=new) == [(new, 0, -1)]
        late = commit(wire, _NEWEST, group, 100, topic_id=old)
        assert late == ErrorCode.UNKNOWN_TOPIC_ID
        assert committed(wire, 9, group, name=name) == [(name, 0, -1)]


def test_a_commit_that_was_on_its_way_while_the_topic_was_recreated_is_no_offset_of_it(
    tmp_path: Path,
) -> None:
    async def offsets() -> list[dict[tuple[str, int], CommittedOffset]]:
        store = LocalCoordination(tmp_path / "coordination.sqlite")
        old, new = Topic("t", (1,)), Topic("t", (1,))
        await store.create_topic(old)
        late = {("t", 0): CommittedOffset(100, topic_id=old.topic_id)}
        await store.commit_offsets("g", late)
        found = [await store.offsets("g")]
        await store.begin_delete("t")
        await store.finish_delete("t")
        await store.create_topic(new)
        await store.commit_offsets("g", late)
        found.append(await store.offsets("g"))
        await store.commit_offsets("g", {("t", 0): CommittedOffset(1, topic_id=new.topic_id)})
        found.append(await store.offsets("g"))
        await store.close()
        return found

    before, after, last = asyncio.run(offsets())
    assert before["t", 0].offset == 100
    assert after == {}
    assert last["t", 0].offset == 1


def test_offsets_of_an_earlier_release_are_kept(tmp_path: Path) -> None:
    """The tables as releases made them that stored no id with an offset."""
    path = tmp_path / "coordination.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE topics (name TEXT PRIMARY KEY, partitions INTEGER NOT NULL,"
            " configs TEXT NOT NULL, deleting INTEGER NOT NULL DEFAULT 0);"
            "INSERT INTO topics VALUES ('t', 1, '{}', 0);"
            "CREATE TABLE offsets (member_group TEXT NOT NULL, topic TEXT NOT NULL,"
            " partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,"
            " leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL,"
            " PRIMARY KEY (member_group, topic, partition)) WITHOUT ROWID;"
            "INSERT INTO offsets VALUES ('g', 't', 0, 7, -1, 'm');"
        )

    async def offsets() -> dict[tuple[str, int], CommittedOffset]:
        store = LocalCoordination(path)
        found = await store.offsets("g")
        await store.close()
        return found

    [(place, at)] = asyncio.run(offsets()).items()
    assert (place, at.offset, at.metadata) == (("t", 0), 7, "m")


def test_requests_that_wait_for_a_flush_learn_that_their_topic_is_gone(
    address: str, new_name: Callable[[], str]
) -> None:
    """A storage error would send people to their disk."""
    found: Counter[int] = Counter()
    gone = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
    with Wire(address) as writer, Wire(address) as admin:

        def is_met() -> bool:
            """Not if all is flushed before the broker reads of the deletion."""
            topic_id = create(admin, new_name())
            for _ in range(40):
                writer.send(ApiKey.PRODUCE, _BY_ID, produce_body(topic_id, acks=-1))
            assert delete(admin, topic_id=topic_id).error_code == 0
            found.update(produced(writer.receive()[1])[1] for _ in range(40))
            return bool(found.keys() & gone)

        for _ in range(8):
            is_met()
        eventually(is_met)
    assert found.keys() - {0} <= gone


def test_an_unknown_group_is_an_error_from_version_6_on(address: str) -> None:
    with Wire(address) as wire:
        for version, error in ((5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
            [group] = wire.ask(
                ApiKey.DESCRIBE_GROUPS,
                version,
                groups=("nobody",),
                include_authorized_operations=False,
            ).groups
            assert (group.error_code, group.group_state) == (error, "Dead")
        assert "nobody" in group.error_message
