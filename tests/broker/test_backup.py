"""Restoring a broker, its coordination store, and a ZooKeeper onto an empty machine.

The commands are those of docs/backup.md. Clients must see afterwards what they saw before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headworks._server import child_process
from headworks.errors import UnreachableError, UsageError
from tests.broker.clients import DEADLINE, eventually
from tests.broker.conftest import start_broker
from tests.ensemble import Ensemble, ensemble
from tests.procedures import commands_of, run

pytestmark = [pytest.mark.e2e, pytest.mark.our_broker("files of our own")]

TOPICS = {"orders": 3, "clicks": 1}
GROUP = "billing"
SMALL = ("--segment-bytes", "20000", "--default-partitions", "1")
COPY_FOLDER, RESTORE_FOLDER = commands_of("Broker folder")
REPLACE_FILE, REPLACE_PARTITION = commands_of("One damaged file")
COPY_STORE, RESTORE_STORE, ADOPT = commands_of("Coordination store")
COPY_ZOOKEEPER, RESTORE_ZOOKEEPER = commands_of("ZooKeeper")


@dataclass(frozen=True)
class Seen:
    """Everything that clients can see of a broker."""

    messages: dict[tuple[str, int], list[tuple[Any, ...]]]
    first_and_end: dict[tuple[str, int], tuple[int, int]]
    committed: dict[tuple[str, int], int]
    configs: dict[str, dict[str, str]]


def fill(address: str) -> None:
    """Topics with a config of their own, messages of several segments, and a group's offsets."""
    admin = AdminClient({"bootstrap.servers": address})
    wanted = [NewTopic(n, count, 1, config={"retention.ms": "-1"}) for n, count in TOPICS.items()]
    for created in admin.create_topics(wanted).values():
        created.result(DEADLINE)
    send(address, *(f"{n:04}" for n in range(600)))
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP})
    places = [TopicPartition("orders", 0, 11), TopicPartition("clicks", 0, 7)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def send(address: str, *values: str, to: Iterable[str] = TOPICS) -> None:
    """Send each value to every topic, as an idempotent producer of its own."""
    failures: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "batch.num.messages": 10}
    )
    for value in values:
        for topic in to:
            producer.produce(
                topic,
                (value * 50).encode(),
                value.encode(),
                headers=[("n", value.encode())],
                timestamp=1_600_000_000_000 + len(value),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
    assert producer.flush(DEADLINE) == 0
    assert failures == []


def see(address: str) -> Seen:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": GROUP, "enable.auto.commit": False}
    )
    places = [TopicPartition(topic, n, 0) for topic, count in TOPICS.items() for n in range(count)]
    ends = {
        (one.topic, one.partition): consumer.get_watermark_offsets(one, DEADLINE) for one in places
    }
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {key: [] for key in ends}
    consumer.assign(places)
    for _ in range(sum(end - first for first, end in ends.values())):
        message = consumer.poll(DEADLINE)
        assert message is not None
        assert message.error() is None, message.error()
        content = (message.offset(), message.key(), message.value())
        about = (*content, message.timestamp(), tuple(message.headers() or ()))
        found[str(message.topic()), int(message.partition() or 0)].append(about)
    committed = {
        (one.topic, one.partition): one.offset for one in consumer.committed(places, DEADLINE)
    }
    consumer.close()
    admin = AdminClient({"bootstrap.servers": address})
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in TOPICS]
    configs = {
        resource.name: {name: str(entry.value) for name, entry in answer.result(DEADLINE).items()}
        for resource, answer in admin.describe_configs(asked).items()
    }
    return Seen(found, ends, committed, configs)


def continues(address: str, before: Seen) -> None:
    """A new producer and the group go on where everything ended."""
    send(address, "after")
    after = see(address)
    for key, messages in before.messages.items():
        assert after.messages[key][: len(messages)] == messages
    counts = [sum(len(messages) for messages in seen.messages.values()) for seen in (before, after)]
    assert counts[1] == counts[0] + len(TOPICS), "each new message is there"


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """DATA, and COPY, which is there already."""
    (tmp_path / "copy").mkdir()
    return {"DATA": tmp_path / "data", "COPY": tmp_path / "copy"}


def test_a_broker_folder_on_an_empty_machine(places: dict[str, Path], tmp_path: Path) -> None:
    with start_broker(places["DATA"], *SMALL) as broker:
        fill(broker.address)
        before = see(broker.address)
    assert before.committed["orders", 0] == 11
    run(COPY_FOLDER, **places)
    empty = {**places, "DATA": tmp_path / "new machine" / "data"}
    run(RESTORE_FOLDER, **empty)
    with start_broker(empty["DATA"], *SMALL) as broker:
        assert see(broker.address) == before
        continues(broker.address, before)


def test_one_damaged_file(places: dict[str, Path]) -> None:
    with start_broker(places["DATA"], *SMALL) as broker:
        fill(broker.address)
        before = see(broker.address)
    run(COPY_FOLDER, **places)
    logs = places["DATA"] / "broker" / "logs"
    folder = next(one for one in sorted(logs.iterdir()) if one.name.startswith("clicks"))
    segment = sorted(folder.glob("*.log"))[1]
    for damage, command in (
        (segment.read_bytes()[:-7], REPLACE_FILE),
        (b"", REPLACE_FILE),
        (b"nonsense", REPLACE_PARTITION),
    ):
        segment.write_bytes(damage)
        with start_broker(places["DATA"], *SMALL) as broker:
            refused = broker.words()
        assert str(segment) in refused
        assert "docs/backup.md" in refused
        file = f"{folder.name}/{segment.name}"
        run(command, **places, FILE=file, PARTITION=folder.name)
        with start_broker(places["DATA"], *SMALL) as broker:
            assert see(broker.address) == before


def test_a_coordination_store_is_copied_from_a_running_broker(places: dict[str, Path]) -> None:
    """The copy is older than the last producers, whose ids must not be given out again."""
    with start_broker(places["DATA"], *SMALL) as broker:
        fill(broker.address)
        run(COPY_STORE, **places)
    with start_broker(places["DATA"], *SMALL) as broker:
        send(broker.address, "later")
        before = see(broker.address)
        send(broker.address, "first", to=["new"])
    store = places["DATA"] / "broker" / "coordination.sqlite"
    store.write_bytes(b"not a store, and longer than the head of one" * 100)
    with pytest.raises((UsageError, UnreachableError), match=r"docs/backup\.md"):
        start_broker(places["DATA"], *SMALL)
    run(RESTORE_STORE, **places)
    run(ADOPT, **places)
    with start_broker(places["DATA"], *SMALL) as broker:
        assert see(broker.address) == before
        continues(broker.address, before)
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": GROUP})
        assert consumer.get_watermark_offsets(TopicPartition("new", 0), DEADLINE) == (0, 1)
        consumer.close()


def test_a_zookeeper_on_empty_machines(places: dict[str, Path], tmp_path: Path) -> None:
    with ensemble(tmp_path / "first", 3) as zookeeper:
        with clustered(places["DATA"], zookeeper) as broker:
            fill(broker.address)
            before = see(broker.address)
            leader = zookeeper.leader()
            run(COPY_ZOOKEEPER, **places, ZOOKEEPER=leader.folder / "data")
        run(COPY_FOLDER, **places)
    empty = {**places, "DATA": tmp_path / "new machine" / "data"}
    run(RESTORE_FOLDER, **empty)
    with (
        restored_ensemble(tmp_path / "second", places) as zookeeper,
        clustered(empty["DATA"], zookeeper) as broker,
    ):
        admin = AdminClient({"bootstrap.servers": broker.address})
        eventually(lambda: len(admin.list_topics(timeout=DEADLINE).topics) == len(TOPICS))
        assert see(broker.address) == before
        continues(broker.address, before)


@contextmanager
def restored_ensemble(folder: Path, places: dict[str, Path]) -> Iterator[Ensemble]:
    """Three servers that find the copy, where an ensemble of before had left other data."""
    zookeeper = Ensemble(folder, 3)
    for server in zookeeper.servers:
        left = server.folder / "data" / "version-2"
        left.mkdir()
        (left / "log.1").write_bytes(b"of an ensemble that was here before")
        run(RESTORE_ZOOKEEPER, **places, ZOOKEEPER=left.parent)
    try:
        zookeeper.start()
        yield zookeeper
    finally:
        zookeeper.stop()


def clustered(folder: Path, zookeeper: Ensemble) -> child_process.Service:
    address = f"{zookeeper.address}/headworks"
    return start_broker(folder, *SMALL, "--zookeeper", address, "--broker-id", "1")
