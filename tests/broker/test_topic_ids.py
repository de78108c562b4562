"""Topic ids: made with the topic, kept as long as it lives, and served wherever Kafka has them."""

from __future__ import annotations

import sqlite3
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headworks._broker.coordination.interface import Topic, new_topic_id
from headworks._broker.coordination.zookeeper.view import derived_topic_id
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import iter_batches, iter_records
from headworks._zookeeper import TopicNode
from tests.broker.build import batch
from tests.broker.clients import eventually
from tests.broker.conftest import start_broker
from tests.broker.wire import Wire, kind, produce
from tests.sqlite_store import execute

pytestmark = pytest.mark.e2e

_FETCH, _METADATA = ApiKey.FETCH, ApiKey.METADATA
_CREATE, _DELETE = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS
_LATEST_FETCH = 18


def create(wire: Wire, name: str) -> uuid.UUID:
    creatable = kind(_CREATE, 7, "request", "CreatableTopic")
    topic = creatable(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
    [created] = wire.ask(
        _CREATE, 7, topics=(topic,), validate_only=False, timeout=_timeout()
    ).topics
    assert (created.error_code, created.name) == (ErrorCode.NONE, name)
    assert isinstance(created.topic_id, uuid.UUID)
    return created.topic_id


def _timeout() -> Any:
    from datetime import timedelta

    return timedelta(seconds=30)


def metadata(
    wire: Wire, *, name: str | None = None, topic_id: uuid.UUID | None = None, version: int = 12
) -> Any:
    asked = kind(_METADATA, version, "request", "MetadataRequestTopic")
    found = wire.ask(
        _METADATA,
        version,
        topics=(asked(name=name, topic_id=topic_id),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    [topic] = found.topics
    return topic


def delete(wire: Wire, *, name: str | None = None, topic_id: uuid.UUID | None = None) -> Any:
    asked = kind(_DELETE, 6, "request", "DeleteTopicState")
    [deleted] = wire.ask(
        _DELETE, 6, topics=(asked(name=name, topic_id=topic_id),), timeout=_timeout()
    ).responses
    return deleted


def fetch(wire: Wire, topic_id: uuid.UUID, version: int, wait_ms: int = 0) -> tuple[int, bytes]:
    """The error and the records of partition 0."""
    from datetime import timedelta

    part = kind(_FETCH, version, "request", "FetchPartition")
    topic = kind(_FETCH, version, "request", "FetchTopic")
    found = wire.ask(
        _FETCH,
        version,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        topics=(
            topic(
                topic_id=topic_id,
                partitions=(part(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),),
            ),
        ),
        forgotten_topics_data=(),
        **({"replica_id": -1} if version < 15 else {}),
    )
    [response] = found.responses
    assert response.topic_id == topic_id
    [data] = response.partitions
    return int(data.error_code), bytes(data.records or b"")


def test_an_id_is_random_and_prints_without_a_leading_dash() -> None:
    ids = {new_topic_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert {one.version for one in ids} == {4}
    assert not any(urlsafe_b64encode(one.bytes).startswith(b"-") for one in ids)


def test_a_topic_has_one_id_everywhere(address: str, new_name: Callable[[], str]) -> None:
    name = new_name()
    with Wire(address) as wire:
        topic_id = create(wire, name)
        for version in (10, 11, 12, 13):
            extra = {"include_cluster_authorized_operations": False} if version == 10 else {}
            asked = kind(_METADATA, version, "request", "MetadataRequestTopic")
            [topic] = wire.ask(
                _METADATA,
                version,
                topics=(asked(name=name, topic_id=None),),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
                **extra,
            ).topics
            assert (topic.name, topic.topic_id) == (name, topic_id)
        found = metadata(wire, topic_id=topic_id)
        assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, name, topic_id)
        assert len(found.partitions) == 1


def test_an_id_that_nobody_has_is_unknown_by_name(address: str) -> None:
    nobody = uuid.uuid4()
    with Wire(address) as wire:
        found = metadata(wire, topic_id=nobody)
        assert (found.error_code, found.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, nobody)
        assert found.name is None
        assert fetch(wire, nobody, 13)[0] == ErrorCode.UNKNOWN_TOPIC_ID
        deleted = delete(wire, topic_id=nobody)
        assert (deleted.error_code, deleted.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, nobody)
        assert deleted.name is None
        assert delete(wire).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(13, _LATEST_FETCH + 1))
def test_records_are_fetched_by_id(address: str, new_name: Callable[[], str], version: int) -> None:
    name = new_name()
    with Wire(address) as wire:
        topic_id = create(wire, name)
        wire.send(ApiKey.PRODUCE, 7, produce(name, 0, bytes(batch(3)), acks=-1))
        wire.receive()
        error, data = fetch(wire, topic_id, version)
        assert error == ErrorCode.NONE
        records = [r for one in iter_batches(data) for r in iter_records(data, one)]
        assert [record.offset for record in records] == [0, 1, 2]


def test_a_topic_that_is_recreated_is_another_topic(
    address: str, new_name: Callable[[], str]
) -> None:
    name = new_name()
    with Wire(address) as wire:
        old = create(wire, name)
        deleted = delete(wire, topic_id=old)
        assert (deleted.error_code, deleted.name) == (ErrorCode.NONE, name)
        new = create(wire, name)
        assert new != old
        wire.send(ApiKey.PRODUCE, 7, produce(name, 0, bytes(batch(1)), acks=-1))
        wire.receive()
        assert fetch(wire, old, 13) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")
        eventually(lambda: fetch(wire, new, 13)[1] != b"")
        assert metadata(wire, topic_id=old).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert delete(wire, topic_id=old).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert metadata(wire, name=name).topic_id == new


def test_a_fetch_that_waits_for_a_deleted_topic_does_not_get_the_next_of_its_name(
    address: str, new_name: Callable[[], str]
) -> None:
    name = new_name()
    with Wire(address) as waiting, Wire(address) as wire:
        old = create(wire, name)
        part = kind(_FETCH, 13, "request", "FetchPartition")
        topic = kind(_FETCH, 13, "request", "FetchTopic")
        from tests.broker.wire import reply, request

        waiting.send(
            _FETCH,
            13,
            request(
                _FETCH,
                13,
                replica_id=-1,
                max_wait=_timeout(),
                min_bytes=1,
                topics=(
                    topic(
                        topic_id=old,
                        partitions=(part(partition=0, fetch_offset=0, partition_max_bytes=1000),),
                    ),
                ),
                forgotten_topics_data=(),
            ),
        )
        delete(wire, topic_id=old)
        create(wire, name)
        wire.send(ApiKey.PRODUCE, 7, produce(name, 0, bytes(batch(1)), acks=-1))
        wire.receive()
        [response] = reply(_FETCH, 13, waiting.receive()[1]).responses
        assert response.topic_id == old
        assert response.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_ids_survive_a_restart_and_topics_of_an_old_installation_get_one(tmp_path: Path) -> None:
    broker = start_broker(tmp_path)
    with Wire(broker.address) as wire:
        kept, old = create(wire, "kept"), create(wire, "old")
    broker.stop()
    store = tmp_path / "broker" / "coordination.sqlite"
    execute(store, "UPDATE topics SET topic_id = NULL WHERE name = 'old'")
    seen = set()
    for _ in range(2):
        broker = start_broker(tmp_path)
        with Wire(broker.address) as wire:
            assert metadata(wire, name="kept").topic_id == kept
            seen.add(metadata(wire, name="old").topic_id)
        broker.stop()
    [given] = seen
    assert given is not None
    assert given != old
    assert given.version == 4


def test_an_installation_without_the_column_gets_it(tmp_path: Path) -> None:
    """The table as releases without topic ids made it."""
    import asyncio

    from headworks._broker.coordination import LocalCoordination

    path = tmp_path / "coordination.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE topics (name TEXT PRIMARY KEY, partitions INTEGER NOT NULL,"
            " configs TEXT NOT NULL, deleting INTEGER NOT NULL DEFAULT 0)"
        )
        db.execute("INSERT INTO topics (name, partitions, configs) VALUES ('a', 1, '{}')")

    async def topics() -> dict[str, Topic]:
        store = LocalCoordination(path)
        found = {topic.name: topic for topic in await store.topics()}
        await store.close()
        return found

    first = asyncio.run(topics())["a"].topic_id
    assert first.version == 4
    assert asyncio.run(topics())["a"].topic_id == first


def test_the_node_in_zookeeper_holds_the_id() -> None:
    topic_id = new_topic_id()
    node = TopicNode((1, 2), {"retention.ms": "1"}, topic_id=topic_id)
    assert TopicNode.load(node.dump(), "/t") == node
    old = TopicNode.load(TopicNode((1,)).dump(), "/t")
    assert old.topic_id is None


def test_the_id_of_an_old_node_is_the_same_for_every_broker() -> None:
    assert derived_topic_id("t", 7) == derived_topic_id("t", 7)
    assert derived_topic_id("t", 7).version == 4
    assert len({derived_topic_id("t", 7), derived_topic_id("t", 8), derived_topic_id("u", 7)}) == 3
