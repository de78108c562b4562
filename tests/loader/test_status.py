"""`load status` beside a real broker: how far behind the tables are, in messages and minutes."""

from __future__ import annotations

import io
import itertools
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from hadoop_loader import status
from hadoop_loader.fetch import KafkaLog
from hadoop_loader.loading import Loading
from hadoop_loader.policy import Policy
from hadoop_loader.status import status_of
from headworks.errors import UsageError
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of
from headworks.service import Service
from headworks.wire import prefix
from tests.soak.fire_loader import parts

MINUTE = 60_000
SCHEMA: Any = {
    "type": "record",
    "name": "Seen",
    "headworks": {"event_time": "at"},
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "text", "type": "string"},
    ],
}
_numbers = itertools.count()


class Stage:
    """Topics of two partitions on the real broker, and a warehouse of theirs."""

    def __init__(self, broker: Service, registry: Service, root: Path) -> None:
        self.stem = f"status{next(_numbers)}"
        self._broker, self._registry, self.root = broker, registry, root
        self._producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 50})
        self._heads: dict[str, bytes] = {}

    def topic(self, name: str) -> str:
        topic = f"{self.stem}.{name}"
        admin = AdminClient({"bootstrap.servers": self._broker.address})
        admin.create_topics([NewTopic(topic, 2)])[topic].result(20)
        text = json.dumps({**SCHEMA, "headworks": {**SCHEMA["headworks"], "topic": topic}})
        registered = RegistryClient(self._registry.url).register(subject_of(topic), text)
        self._heads[topic] = prefix(registered.id)
        return topic

    def send(self, topic: str, partition: int, minutes_ago: float, count: int = 1) -> None:
        """Messages that were written so long ago, and one that is of now."""
        now = int(time.time() * 1000)
        for n in range(count):
            out = io.BytesIO()
            at = now - int(minutes_ago * MINUTE) if n == 0 else now
            fastavro.schemaless_writer(out, SCHEMA, {"at": at, "text": "x" * 1000})
            value = self._heads[topic] + out.getvalue()
            self._producer.produce(topic, value, partition=partition, timestamp=at)
        self._producer.flush()

    def load(self) -> None:
        ready = parts(self._broker.address, self._registry.url, self.root)
        policy = Policy(allow=rf"{self.stem}\..*")
        report = Loading(replace(ready, policy=policy)).run()
        assert report.left_out is None

    def lags(self) -> dict[str, tuple[int, float]]:
        found = status_of(self.root, self._broker.address)
        assert found["broker_error"] is None
        return {t["topic"]: (t["lag_messages"], t["lag_minutes"]) for t in found["topics"]}


@pytest.fixture
def stage(broker: Service, registry: Service, tmp_path: Path) -> Stage:
    return Stage(broker, registry, tmp_path)


def test_status_says_how_far_behind_each_topic_is(stage: Stage) -> None:
    busy, idle, behind = map(stage.topic, ("busy", "idle", "behind"))
    for topic in (busy, idle, behind):
        stage.send(topic, 0, 99, 3)
    stage.load()
    assert stage.lags() == {busy: (0, 0.0), idle: (0, 0.0), behind: (0, 0.0)}

    stage.send(busy, 0, 5, 200)  # more than is asked of a partition at a time
    stage.send(busy, 1, 25, 300)
    stage.send(behind, 1, 90)
    lags = stage.lags()
    assert lags[idle] == (0, 0.0)
    assert [lags[topic][0] for topic in (busy, behind)] == [500, 1]
    assert 25 <= lags[busy][1] < 27, "the oldest of any partition"
    assert 90 <= lags[behind][1] < 92

    stage.load()
    assert set(stage.lags().values()) == {(0, 0.0)}


def test_status_without_a_broker_says_the_rest(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "KafkaLog", partial(KafkaLog, timeout=1))
    topic = stage.topic("alone")
    with pytest.raises(UsageError, match="is no warehouse"):
        status_of(stage.root / "other")
    stage.send(topic, 0, 1, 7)
    stage.load()
    stage.send(topic, 0, 1, 2)
    for bootstrap in (None, "127.0.0.1:1"):
        found = status_of(stage.root, bootstrap)
        (one,) = found["topics"]
        assert (one["topic"], one["rows"], one["offsets"][0]) == (topic, 7, 7)
        assert (one["lag_messages"], one["lag_minutes"]) == (None, None)
        assert (found["broker_error"] is None) == (bootstrap is None)
