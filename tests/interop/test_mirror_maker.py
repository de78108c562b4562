"""MirrorMaker 2 copies a topic and a group's position exactly once, though it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headworks._server.child_process import Service
from tests.interop import apache_kafka
from tests.interop.in_place import start_in_place
from tests.interop.programs import (
    PATIENCE_SECONDS,
    Feed,
    Follower,
    Program,
    create,
    messages,
    repeated_or_missing,
)
from tests.waiting import until

pytestmark = [pytest.mark.contract, pytest.mark.timeout(1200)]
_TOPIC, _COPY, _GROUP = "orders", "one.orders", "billing"
_PROGRESS = 200  # messages between two kills
_SETTINGS = {
    "clusters": "one, two",
    "one->two.enabled": "true",
    "two->one.enabled": "false",
    "one->two.topics": _TOPIC,
    "one->two.groups": _GROUP,
    "two.exactly.once.source.support": "enabled",
    "dedicated.mode.enable.internal.rest": "true",
    "listeners": "http://127.0.0.1:0",
    "replication.factor": "1",
    **{f"{kind}.topic.replication.factor": "1" for kind in ("offset-syncs", "checkpoints")},
    **{f"{kind}.storage.replication.factor": "1" for kind in ("offset", "status", "config")},
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.topic.acls.enabled": "false",  # our broker keeps grants in a file
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "offset.lag.max": "0",  # a sync for each message, so that positions are exact
    "offset.flush.interval.ms": "500",
    "session.timeout.ms": "2000",  # of a worker that was killed
    "heartbeat.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "0",
}


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Service]:
    """The broker that gets the copies."""
    with start_in_place(tmp_path / "other") as running:
        yield running


def test_each_message_and_the_group_arrive_once(
    broker: Service, other: Service, tmp_path: Path
) -> None:
    create(broker.address, _TOPIC)
    _set_retention(broker.address, "86400000")
    with (
        Program(_command(broker.address, other.address, tmp_path), tmp_path / "mm.log") as mirror,
        Feed(broker.address, _TOPIC, keys=7) as feed,
    ):
        mirror.start()
        until(lambda: _exists(other.address, mirror), PATIENCE_SECONDS)
        with Follower(other.address, _COPY, mirror) as copied:
            copied.wait_for(_PROGRESS)
            mirror.kill()
            mirror.start()
            copied.wait_for(copied.count + _PROGRESS)
            feed.finish()
            copied.wait_for(len(feed.sent))
        _commit(broker.address, _ends(broker.address, _TOPIC))
        ends = _ends(other.address, _COPY)  # markers of transactions follow them
        until(lambda: _committed(other.address) == ends, PATIENCE_SECONDS)
        assert _retention(other.address) == "86400000"
    for index in range(2):
        source, target = (
            [(m.key(), m.value()) for m in messages(address, topic) if m.partition() == index]
            for address, topic in ((broker.address, _TOPIC), (other.address, _COPY))
        )
        assert source == target
    found = [message.value() or b"" for message in messages(other.address, _COPY)]
    assert repeated_or_missing(found, [value for _, value in feed.sent]) == ""


def _command(source: str, target: str, folder: Path) -> list[str]:
    settings = _SETTINGS | {"one.bootstrap.servers": source, "two.bootstrap.servers": target}
    properties = folder / "mirror.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return apache_kafka.java("org.apache.kafka.connect.mirror.MirrorMaker", str(properties))


def _exists(address: str, mirror: Program) -> bool:
    """Return whether the copy has been created."""
    mirror.check()
    return _COPY in AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).topics


def _set_retention(address: str, value: str) -> None:
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, _TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address})
    admin.incremental_alter_configs([resource])[resource].result(60)


def _retention(address: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, _COPY)
    admin = AdminClient({"bootstrap.servers": address})
    return str(admin.describe_configs([resource])[resource].result(60)["retention.ms"].value)


def _ends(address: str, topic: str) -> list[int]:
    """Return the offset after the last message of each partition."""
    ends = [0, 0]
    for message in messages(address, topic):
        ends[message.partition() or 0] = (message.offset() or 0) + 1
    return ends


def _commit(address: str, offsets: list[int]) -> None:
    """Commit positions of the group in the source."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": _GROUP})
    places = [TopicPartition(_TOPIC, index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def _committed(address: str) -> list[int]:
    """Return the positions of the group in the copy."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": _GROUP})
    places = consumer.committed([TopicPartition(_COPY, index) for index in range(2)], timeout=60)
    consumer.close()
    return [place.offset for place in places]
