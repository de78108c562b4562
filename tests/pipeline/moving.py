"""A pipeline that runs while it is moved: its messages, its warehouse, and its consumer groups."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import fastavro
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.move import Move, MoveReport
from hadoop_loader._operations.move_groups import MovedGroups
from headworks._wire import HEADER_SIZE, prefix
from headworks.groups import Groups, TopicPartition
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of
from tests.mirror.messages import create
from tests.soak.fire_loader import loader_context
from tests.waiting import until

PARTITIONS = 3
SCHEMA: Any = {"type": "record", "name": "Step", "fields": [{"name": "n", "type": "long"}]}
_numbers = itertools.count()


class Traffic(Thread):
    """Numbered messages for a cluster, until it is sent elsewhere; `sent` has the acknowledged."""

    def __init__(self, topic: str, head: bytes, address: str) -> None:
        super().__init__(daemon=True)
        self.sent: set[int] = set()
        self.left: set[str] = set()  # the clusters to which nothing is under way any more
        self.address, self._topic, self.head = address, topic, head
        self._ended = Event()

    def run(self) -> None:
        for address in iter(lambda: None if self._ended.is_set() else self.address, None):
            properties = {"bootstrap.servers": address, "linger.ms": 5, "enable.idempotence": True}
            producer = Producer(properties)
            while address == self.address and not self._ended.is_set():
                n = next(_numbers)
                out = io.BytesIO()
                fastavro.schemaless_writer(out, SCHEMA, {"n": n})
                producer.produce(
                    self._topic, self.head + out.getvalue(), partition=n % PARTITIONS,
                    on_delivery=self._told(n),
                )  # fmt: skip
                producer.poll(0.001)
            assert producer.flush(60) == 0
            self.left.add(address)

    def end(self) -> None:
        self._ended.set()
        self.join(60)

    def _told(self, n: int) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, _: Message) -> None:
            assert error is None, error
            self.sent.add(n)

        return told


class Pipeline:
    """A topic on two clusters, its traffic, and its warehouse."""

    def __init__(self, old: str, new: str, registry: str, root: Path) -> None:
        self.old, self.new, self.root = old, new, root
        self._registry = registry
        self.topic = f"moved{next(_numbers)}"
        for address in (self.old, self.new):
            create(address, self.topic, PARTITIONS)
        text = json.dumps(SCHEMA)
        found = RegistryClient(registry).register(subject_of(self.topic), text)
        self.traffic = Traffic(self.topic, prefix(found.id), self.old)
        self.traffic.start()

    def context(self, address: str) -> LoaderContext:
        ready = loader_context(address, self._registry, self.root)
        return replace(ready, policy=Policy(allow=self.topic))

    def load(self, address: str) -> int:
        report = Load(self.context(address)).run()
        assert report.left_out is None
        return report.rows

    def move(self, start: str | None, groups: str | None = None) -> MoveReport:
        moved = None if groups is None else MovedGroups(self.old, self.new, groups)
        old = KafkaLog({"bootstrap.servers": self.old})
        return Move(self.context(self.new), old, groups=moved).run(start)

    def turn(self) -> None:
        """Take the new cluster for the old one, whose topic is made anew."""
        admin = AdminClient({"bootstrap.servers": self.old, "log_level": 0})
        admin.delete_topics([self.topic])[self.topic].result(60)
        until(lambda: self.topic not in admin.list_topics(timeout=60).topics)
        create(self.old, self.topic, PARTITIONS)
        self.old, self.new = self.new, self.old

    def read(self, address: str, group: str, *, until_n: int | None = None) -> list[int]:
        """Read as a member of a group: some messages, or (None) all that are there; then leave.

        A message that comes again, because the group's members changed, counts once.
        """
        asked = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "error"}
        consumer = Consumer({**asked, "enable.auto.commit": False, "enable.partition.eof": True})
        consumer.subscribe([self.topic])
        found: dict[tuple[int | None, int | None], int] = {}  # by partition and offset
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS if until_n is None else len(found) < until_n:
            message = consumer.poll(60)
            assert message is not None, f"{address} sends nothing"
            if (error := message.error()) is None:
                found[message.partition(), message.offset()] = _number(message)
                ended.discard(message.partition())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        committed = consumer.commit(asynchronous=False) or []
        assert not any(place.error for place in committed), committed
        consumer.close()
        return list(found.values())

    def join(self, *groups: str) -> None:
        """Set groups to the beginning of the old cluster, as consumers that came early have it."""
        with Groups(self.old) as known:
            for group in groups:
                places = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
                known.move(group, dict.fromkeys(places, 0))

    def sent(self, more: int) -> None:
        """Wait until so many more messages are acknowledged."""
        wanted = len(self.traffic.sent) + more
        until(lambda: len(self.traffic.sent) >= wanted)

    def loaded(self) -> list[int]:
        files = sorted((self.root / self.topic).rglob("*.parquet"))
        columns: list[list[Any]] = [pq.ParquetFile(f).read()["n"].to_pylist() for f in files]
        return sorted(itertools.chain(*columns))


def _number(message: Message) -> int:
    value = message.value()
    assert value is not None
    read: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER_SIZE:]), SCHEMA, None)
    return int(read["n"])
