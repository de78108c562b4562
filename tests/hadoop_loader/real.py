"""Topics on a real broker, schemas in a real registry, and a warehouse of theirs, without Spark."""

from __future__ import annotations

import io
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.report import LoadReport
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.status import warehouse_status
from headworks._server.child_process import Service
from headworks._wire import prefix
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of
from tests.soak.fire_loader import loader_context

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
        self.broker, self.registry, self.root = broker, RegistryClient(registry.url), root
        self._producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 50})
        self._heads: dict[str, bytes] = {}

    def topic(self, name: str) -> str:
        topic = f"{self.stem}.{name}"
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        admin.create_topics([NewTopic(topic, 2)])[topic].result(60)
        text = json.dumps({**SCHEMA, "headworks": {**SCHEMA["headworks"], "topic": topic}})
        registered = self.registry.register(subject_of(topic), text)
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

    def load(self) -> LoadReport:
        ready = loader_context(self.broker.address, self.registry.url, self.root)
        policy = Policy(allow=rf"{self.stem}\..*")
        report = Load(replace(ready, policy=policy)).run()
        assert report.left_out is None
        return report

    def rows(self, topic: str, column: str) -> list[Any]:
        """What the table's files have in a column."""
        files = (self.root / topic.replace(".", "_")).rglob("*.parquet")
        return [value for file in files for value in pq.read_table(file)[column].to_pylist()]

    def lags(self) -> dict[str, tuple[int, float]]:
        found = warehouse_status(self.root, self.broker.address)
        assert found["broker_error"] is None
        return {t["topic"]: (t["lag_messages"], t["lag_minutes"]) for t in found["topics"]}
