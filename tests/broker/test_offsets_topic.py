"""The topic `__consumer_offsets`: what it holds, and that all may read it and nobody write it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._broker.coordination import CommittedOffset
from headworks._broker.topics import (
    StorageFailureError,
    TopicChanges,
    offsets_topic,
    open_offsets_topic,
)
from headworks._broker.topics.offset_records import (
    OffsetKey,
    decode_key,
    decode_value,
    encode_offset,
)
from headworks._broker.topics.offsets_topic import OffsetsTopic
from headworks._broker.topics.topic import OFFSETS_TOPIC
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import iter_batches, iter_records
from headworks._server import child_process
from headworks._server.security.users import derive, write_users
from headworks.errors import UsageError
from tests.broker.build import batch
from tests.broker.clients import DEADLINE, eventually
from tests.broker.conftest import start_broker
from tests.broker.test_grant_matrix import log_in
from tests.broker.test_security_access import ASKED, TOPIC, codes
from tests.broker.test_transaction_coordinator import Broker, serving
from tests.broker.wire import Wire, fetch, fetched, kind, produce, produced

pytestmark = pytest.mark.e2e

_SERVED = "--offsets-topic"
_KEY = OffsetKey("a group", "shop.orders", 7)
_AT = CommittedOffset(1 << 40, 3, "né")
GROUPS = ("same", "later", "gone")


def start(folder: Path, *options: str) -> child_process.Service:
    return start_broker(folder, _SERVED, "--default-partitions", "1", *options)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    with start(tmp_path_factory.mktemp("served")) as running:
        yield running


def create(address: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        future.result(DEADLINE)


def commit(address: str, group: str, topic: str, offset: int, note: str = "") -> None:
    of = partial(kind, ApiKey.OFFSET_COMMIT, 7, "request")
    place = of("OffsetCommitRequestPartition")(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata=note,
    )
    _, fields = ASKED[ApiKey.OFFSET_COMMIT](topic, group)
    fields["topics"] = (of("OffsetCommitRequestTopic")(name=topic, partitions=(place,)),)
    with Wire(address) as wire:
        assert codes(wire.ask(ApiKey.OFFSET_COMMIT, 7, **fields)) == [0]


def records(wire: Wire) -> list[tuple[OffsetKey, CommittedOffset | None]]:
    """Everything in the topic, in order."""
    found: list[tuple[OffsetKey, CommittedOffset | None]] = []
    offset, end = 0, 1
    while offset < end:
        wire.send(ApiKey.FETCH, 11, fetch(OFFSETS_TOPIC, 0, offset))
        error, end, data = fetched(wire.receive()[1])
        assert not error
        if not data:
            break
        for one in iter_batches(data):
            for record in iter_records(data, one):
                value = None if record.value is None else decode_value(record.value)
                found.append((decode_key(record.key or b""), value))
            offset = one.base_offset + one.last_offset_delta + 1
    return found


def copied(address: str) -> dict[OffsetKey, CommittedOffset]:
    """The offsets that a reader of the topic knows of."""
    with Wire(address) as wire:
        latest = dict(records(wire))
    return {key: at for key, at in latest.items() if at is not None}


def test_a_record_has_the_bytes_that_kafka_writes() -> None:
    record = encode_offset(_KEY, _AT, 1_700_000_000_000)
    assert record.key == b"\0\1\0\7a group\0\x0bshop.orders\0\0\0\7"
    value = b"\0\3" + (1 << 40).to_bytes(8) + b"\0\0\0\3" + "\0\3né".encode()
    assert record.value == value + (1_700_000_000_000).to_bytes(8)
    assert (decode_key(record.key), decode_value(record.value)) == (_KEY, _AT)
    assert encode_offset(_KEY, None, 0)[3] is None


@pytest.mark.parametrize("data", [b"\0\2\0\1g", b"\0\0\0\1g\0\1t\0\0\0\0"])
def test_another_kind_of_key_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an OffsetCommitKey"):
        decode_key(data)


def test_it_follows_commits_and_deletions(served: child_process.Service) -> None:
    address = served.address
    create(address, "followed", "dropped")
    admin = AdminClient({"bootstrap.servers": address})
    for number in range(3):
        commit(address, "kept", "followed", number, "noted")
        commit(address, "gone", "followed", number)
        commit(address, "kept", "dropped", number)
    kept = OffsetKey("kept", "followed", 0), OffsetKey("kept", "dropped", 0)
    gone = OffsetKey("gone", "followed", 0)
    expected = {
        kept[0]: CommittedOffset(2, -1, "noted"),
        gone: CommittedOffset(2),
        kept[1]: CommittedOffset(2),
    }
    eventually(lambda: expected.items() <= copied(address).items())
    admin.delete_consumer_groups(["gone"])["gone"].result(DEADLINE)
    admin.delete_topics(["dropped"])["dropped"].result(DEADLINE)
    eventually(lambda: not {gone, kept[1]} & copied(address).keys())
    assert kept[0] in copied(address)


def test_it_has_the_longest_names_and_notes(served: child_process.Service) -> None:
    """A record's strings have two bytes of length. The broker's limits count characters."""
    longest = {"group": "\U0001f600" * 1000, "topic": "t" * 249, "note": "\U0001f600" * 4096}
    create(served.address, longest["topic"])
    commit(served.address, longest["group"], longest["topic"], 5, longest["note"])
    key = OffsetKey(longest["group"], longest["topic"], 0)
    expected = CommittedOffset(5, -1, longest["note"])
    eventually(lambda: copied(served.address).get(key) == expected)


def test_it_follows_offsets_in_transactions(served: child_process.Service) -> None:
    address = served.address
    create(address, "paid")
    producer = Producer({"bootstrap.servers": address, "transactional.id": "payer"})
    producer.init_transactions(DEADLINE)
    reader = Consumer({"bootstrap.servers": address, "group.id": "payers"})
    for offset, ends in (
        (5, producer.abort_transaction),
        (9, producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("paid", 0, offset)], reader.consumer_group_metadata(), DEADLINE
        )
        ends(DEADLINE)
    paid = OffsetKey("payers", "paid", 0)
    eventually(lambda: paid in copied(address))
    with Wire(address) as wire:
        seen = [at.offset for key, at in records(wire) if key == paid and at is not None]
    assert seen == [9]


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, "__transaction_state", "__share_group_state"])
def test_no_monitor_creates_a_topic_of_kafka_by_looking_for_it(address: str, name: str) -> None:
    """Burrow's client allows its creation. An empty topic would say that no group exists."""
    asked = kind(ApiKey.METADATA, 5, "request", "MetadataRequestTopic")(name=name)
    with Wire(address) as wire:
        [topic] = wire.ask(
            ApiKey.METADATA, 5, topics=(asked,), allow_auto_topic_creation=True
        ).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert name not in AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).topics


def test_it_is_internal_and_matches_an_expression(served: child_process.Service) -> None:
    asked = kind(ApiKey.METADATA, 5, "request", "MetadataRequestTopic")(name=OFFSETS_TOPIC)
    with Wire(served.address) as wire:
        [topic] = wire.ask(
            ApiKey.METADATA, 5, topics=(asked,), allow_auto_topic_creation=True
        ).topics
    assert (topic.is_internal, topic.error_code, len(topic.partitions)) == (True, 0, 1)
    create(served.address, "by-expression")
    commit(served.address, "any", "by-expression", 1)
    consumer = Consumer(
        {
            "bootstrap.servers": served.address,
            "group.id": "watchers",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # the commit would be one more record, at any time
        }
    )
    consumer.subscribe(["^__consumer_.*"])
    read: list[Any] = []

    def arrived() -> bool:
        message = consumer.poll(1)
        read.extend([] if message is None else [message])
        return bool(read) and read[-1].error() is None

    eventually(arrived)
    consumer.close()
    assert read[-1].topic() == OFFSETS_TOPIC


@pytest.mark.parametrize(
    "api",
    [
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DELETE_RECORDS,
    ],
)
def test_nobody_changes_it(served: child_process.Service, api: ApiKey) -> None:
    version, fields = ASKED[api](OFFSETS_TOPIC, "g")
    with Wire(served.address) as wire:
        assert set(codes(wire.ask(api, version, **fields))) == {ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_nobody_writes_it(served: child_process.Service) -> None:
    with Wire(served.address) as wire:
        for _ in range(3):  # the later ones are alike, which the broker may join
            wire.send(ApiKey.PRODUCE, 7, produce(OFFSETS_TOPIC, 0, bytes(batch()), acks=-1))
        for _ in range(3):
            code = produced(wire.receive()[1], OFFSETS_TOPIC)[0]
            assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        records(wire)  # which fails at a record that has no key


def test_it_can_be_deleted_neither_by_its_id_nor_made_again(served: child_process.Service) -> None:
    admin = AdminClient({"bootstrap.servers": served.address})
    with pytest.raises(KafkaException, match="exists"):
        admin.create_topics([NewTopic(OFFSETS_TOPIC, 1, 1)])[OFFSETS_TOPIC].result(DEADLINE)
    topic_id = kind(ApiKey.METADATA, 12, "request", "MetadataRequestTopic")
    with Wire(served.address) as wire:
        [found] = wire.ask(
            ApiKey.METADATA,
            12,
            topics=(topic_id(name=OFFSETS_TOPIC, topic_id=None),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        ).topics
        named = kind(ApiKey.DELETE_TOPICS, 6, "request", "DeleteTopicState")
        asked = named(name=None, topic_id=found.topic_id)
        deleted = wire.ask(ApiKey.DELETE_TOPICS, 6, topics=(asked,), timeout=_a_second())
    assert [one.error_code for one in deleted.responses] == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def _a_second() -> Any:
    return ASKED[ApiKey.DELETE_TOPICS]("t", "g")[1]["timeout"]


def test_it_equals_the_store_after_a_kill(tmp_path: Path) -> None:
    with start(tmp_path) as running:
        create(running.address, "t")
        for number in range(20):
            commit(running.address, f"group-{number % 3}", "t", number)
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
    with start(tmp_path) as running:
        expected = {OffsetKey(f"group-{n % 3}", "t", 0): CommittedOffset(n) for n in range(17, 20)}
        eventually(lambda: copied(running.address) == expected)


@asynccontextmanager
async def inside(folder: Path, *, wanted: bool = True) -> AsyncIterator[Broker]:
    """A broker's parts with the topic, which has all changes on disk in the end."""
    async with serving(folder) as broker:
        if "t" not in broker.hosted.topics:
            await broker.changes.create("t", 2, {})
        topic = await open_offsets_topic(
            broker.hosted, broker.changes, broker.coordination, time.time, wanted=wanted
        )
        yield broker
        if topic is not None:
            topic.close()
            partition = broker.partition(OFFSETS_TOPIC)
            await partition.wait_until_exposed()
            partition.log.close()


async def store(broker: Broker, group: str, offset: int) -> None:
    await broker.coordination.commit_offsets(group, {("t", 0): CommittedOffset(offset)})


def in_file(folder: Path) -> list[tuple[OffsetKey, CommittedOffset | None]]:
    """The records in the topic's first segment, by its file."""
    [log] = (folder / "logs" / f"{OFFSETS_TOPIC}-0").glob("*.log")
    data = log.read_bytes()
    return [
        (decode_key(one.key or b""), None if one.value is None else decode_value(one.value))
        for header in iter_batches(data)
        for one in iter_records(data, header)
    ]


def place(group: str) -> OffsetKey:
    return OffsetKey(group, "t", 0)


def test_a_start_writes_what_differs(tmp_path: Path) -> None:
    async def run() -> None:
        async with inside(tmp_path) as broker:
            for number, group in enumerate(GROUPS):
                await store(broker, group, number)
        first = in_file(tmp_path)
        assert first == [(place(g), CommittedOffset(n)) for n, g in enumerate(GROUPS)]
        async with inside(tmp_path):
            pass
        assert in_file(tmp_path) == first
        async with serving(tmp_path) as broker:  # as if it had been killed before it wrote these
            await store(broker, "later", 7)
            await broker.coordination.delete_offsets("gone")
        async with inside(tmp_path):
            pass
        assert in_file(tmp_path) == [
            *first,
            (place("later"), CommittedOffset(7)),
            (place("gone"), None),
        ]

    asyncio.run(run())


def _cut(log: Path) -> None:
    os.truncate(log, 40)


def _overwrite(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[70:90] = bytes(20)
    log.write_bytes(data)


def _remove(log: Path) -> None:
    shutil.rmtree(log.parent)


@pytest.mark.parametrize("hurt", [_cut, _overwrite, _remove])
def test_a_damaged_copy_is_made_again(tmp_path: Path, hurt: Callable[[Path], None]) -> None:
    async def run() -> None:
        async with inside(tmp_path) as broker:
            for number in range(1000):
                await store(broker, f"group-{number}", number)
        expected = {place(f"group-{number}"): CommittedOffset(number) for number in range(1000)}
        assert dict(in_file(tmp_path)) == expected
        [log] = (tmp_path / "logs" / f"{OFFSETS_TOPIC}-0").glob("*.log")
        hurt(log)
        async with inside(tmp_path):
            pass
        assert dict(in_file(tmp_path)) == expected

    asyncio.run(run())


def test_a_disk_that_fails_delays_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with inside(tmp_path) as broker:
            partition = broker.partition(OFFSETS_TOPIC)

            def full() -> None:
                raise OSError(errno.ENOSPC, "no space left")

            with monkeypatch.context() as patched:
                patched.setattr(partition.log, "commit", full)
                await store(broker, "same", 1)
                with pytest.raises(StorageFailureError):
                    _topic(broker).write_some()
            await store(broker, "later", 2)
        assert dict(in_file(tmp_path)) == {
            place("same"): CommittedOffset(1),
            place("later"): CommittedOffset(2),
        }

    asyncio.run(run())


def _topic(broker: Broker) -> OffsetsTopic:
    observer: Any = broker.coordination.committed.observer
    found: OffsetsTopic = observer.__self__
    return found


def test_an_unexpected_error_delays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[OffsetKey] = []

    def fails_first(key: OffsetKey, *rest: Any) -> Any:
        if not failed:
            failed.append(key)
            raise struct.error("too large")
        return encode_offset(key, *rest)

    async def run() -> None:
        async with inside(tmp_path) as broker:
            partition = broker.partition(OFFSETS_TOPIC)
            monkeypatch.setattr(offsets_topic, "encode_offset", fails_first)
            monkeypatch.setattr(offsets_topic, "_RETRY_SECONDS", 0)
            await store(broker, "same", 1)
            following = asyncio.create_task(_topic(broker).keep_up())
            async with asyncio.timeout(DEADLINE):
                while not partition.log.log_end_offset:
                    assert not following.done()
                    await asyncio.sleep(0.02)
            following.cancel()
        assert dict(in_file(tmp_path)) == {place("same"): CommittedOffset(1)}

    asyncio.run(run())
    assert failed
    assert any(one.exc_info and "too large" in str(one.exc_info[1]) for one in caplog.records)


def test_an_unexpected_error_does_not_stop_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise struct.error("too large")

    async def run() -> None:
        async with inside(tmp_path) as broker:
            await store(broker, "same", 1)
            with monkeypatch.context() as patched:
                patched.setattr(offsets_topic, "encode_offset", fails)
                _topic(broker).close()
        assert dict(in_file(tmp_path)) == {place("same"): CommittedOffset(1)}

    asyncio.run(run())


def test_a_copy_made_again_has_what_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delete removes the offsets in the topic itself, and a commit comes beside it."""
    create_internal = TopicChanges.create_internal

    async def run() -> None:
        async with inside(tmp_path) as broker:
            await store(broker, "same", 1)
            watched = {(OFFSETS_TOPIC, 0): CommittedOffset(1)}
            await broker.coordination.commit_offsets("watchers", watched)
        _remove(tmp_path / "logs" / f"{OFFSETS_TOPIC}-0" / "0.log")
        async with serving(tmp_path) as broker:

            async def beside(changes: TopicChanges, *given: Any) -> None:
                await create_internal(changes, *given)
                await store(broker, "later", 2)

            monkeypatch.setattr(TopicChanges, "create_internal", beside)
            topic = await open_offsets_topic(
                broker.hosted, broker.changes, broker.coordination, time.time, wanted=True
            )
            assert topic is not None
            topic.close()
            partition = broker.partition(OFFSETS_TOPIC)
            await partition.wait_until_exposed()
            partition.log.close()
        assert dict(in_file(tmp_path)) == {
            place("same"): CommittedOffset(1),
            place("later"): CommittedOffset(2),
        }

    asyncio.run(run())


def test_a_broker_without_the_option_removes_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with inside(tmp_path) as broker:
            await store(broker, "same", 1)
        async with inside(tmp_path, wanted=False) as broker:
            assert set(broker.hosted.topics) == {"t"}
            await store(broker, "same", 2)
        async with inside(tmp_path):
            pass
        assert in_file(tmp_path) == [(place("same"), CommittedOffset(2))]

    asyncio.run(run())


def test_the_topic_of_a_client_is_left_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with inside(tmp_path, wanted=False) as broker:
            await broker.changes.create(OFFSETS_TOPIC, 1, {})
        with pytest.raises(UsageError, match="not what --offsets-topic serves"):
            async with inside(tmp_path):
                pass
        async with inside(tmp_path, wanted=False) as broker:
            assert not broker.hosted.topics[OFFSETS_TOPIC].internal
            await broker.changes.delete(OFFSETS_TOPIC)
        async with inside(tmp_path) as broker:
            assert broker.hosted.topics[OFFSETS_TOPIC].internal
            assert not broker.hosted.opened_topics, "producers keep the fast path"

    asyncio.run(run())


def test_a_cluster_refuses_it(tmp_path: Path) -> None:
    class Cluster:
        """A store that is not that of a single broker."""

    async def run() -> None:
        async with serving(tmp_path) as broker:
            cluster: Any = Cluster()
            with pytest.raises(UsageError, match="without ZooKeeper"):
                await open_offsets_topic(
                    broker.hosted, broker.changes, cluster, time.time, wanted=True
                )

    asyncio.run(run())


def test_a_grant_governs_who_reads_it(tmp_path: Path) -> None:
    users = ("root", "reader", "other")
    write_users(tmp_path / "users", {user: derive(user, b"salt" * 6, 4096) for user in users})
    (tmp_path / "access.toml").write_text(
        "[[grants]]\nto = ['root']\nroles = ['admin']\n"
        "[[grants]]\nto = ['reader']\nroles = ['reader']\n"
        f"on = ['topics']\nname = '{OFFSETS_TOPIC}'\n"
        "[[grants]]\nto = ['other']\nroles = ['reader', 'writer']\n"
        "on = ['topics']\nprefix = 'shop.'\n",
        encoding="utf-8",
    )
    files = ("--users", str(tmp_path / "users"), "--access", str(tmp_path / "access.toml"))
    with start(tmp_path / "data", *files) as running:
        for user, read in (("root", 0), ("reader", 0), ("other", TOPIC)):
            with log_in(running, user) as wire:
                wire.send(ApiKey.FETCH, 11, fetch(OFFSETS_TOPIC, 0, 0))
                assert (user, fetched(wire.receive()[1])[0]) == (user, read)
                listed = wire.ask(
                    ApiKey.METADATA, 5, topics=None, allow_auto_topic_creation=False
                ).topics
                assert bool(listed) == (read == 0)
        with log_in(running, "root") as wire:
            wire.send(ApiKey.PRODUCE, 7, produce(OFFSETS_TOPIC, 0, bytes(batch()), acks=-1))
            code = produced(wire.receive()[1], OFFSETS_TOPIC)[0]
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
