"""A damaged record batch holds up its partition alone, or is skipped and counted."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.report import LoadReport
from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.damage import DamagedRange, DamageReport
from hadoop_loader._fetch.kafka_log import KafkaFetcher
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._fetch.ranges import FetchRange
from hadoop_loader._operations.audit_counts import audit_events
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.metrics import LoaderMetrics
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._operations.status import warehouse_status
from headworks._kafka.client_properties import client_properties
from headworks._kafka.damaged_batch import DamagedBatchError
from headworks._kafka.records import Batch
from headworks._server.child_process import Service
from headworks._wire import prefix
from headworks.errors import CorruptError
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of
from tests.damage import batches, flip_bit, produce_batches, segment
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import V1, click, numbers
from tests.soak.fire_loader import loader_context

pytestmark = pytest.mark.unit

_numbers = itertools.count()


def damaged_world(world: World) -> World:
    """Thirty clicks over three partitions, offsets 4 and 5 of one damaged; and another topic."""
    world.register("clicks", V1)
    other = world.register("other", V1)
    for n in range(30):
        click(world, n)
    world.log.append("other", encoded(V1, {"at": 0, "n": 7}, other))
    world.log.damaged = [DamagedRange("clicks", 1, 4, 6)]
    return world


LOST = [13, 16]  # what partition 1 has at offsets 4 and 5
BEHIND = [19, 22, 25, 28]


def test_a_partition_is_loaded_up_to_its_damaged_batch_and_all_else_to_the_end(
    world: World, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    damaged_world(world)
    report = Load(world.context()).run()
    assert numbers(world) == sorted({*range(30)} - {*LOST, *BEHIND})
    assert numbers(world, "other") == [7]
    (left,) = report.damaged
    assert (left.topic, left.offsets) == ("clicks", {1: 4})
    assert left.reason == (
        "clicks partition 1 offset 4: the record batch there is damaged: its CRC\n"
        "  fix: load with --skip-damaged to continue behind it, and its messages are counted as "
        "damaged; or restore the partition from a backup (docs/backup.md). `headworks log dump` "
        "shows the batch"
    )
    assert report.left_out == "partitions with a damaged batch: 1"
    assert "clicks[1] is loaded up to a damaged batch at offset 4: its CRC" in caplog.text
    last = world.context().log.latest()
    assert last is not None
    assert last.committed("clicks") == {0: 10, 1: 4, 2: 10}
    assert [one["offsets"] for one in warehouse_status(world.root)["damaged"]] == [{"1": 4}]
    metrics = LoaderMetrics(world.root)
    metrics.loaded(report)
    metrics.write(tmp_path / "m.prom")
    assert "headworks_loader_partitions_damaged 1.0" in (tmp_path / "m.prom").read_text()

    again = Load(world.context()).run()
    assert (again.committed, again.damaged) == (False, report.damaged)
    world.log.damaged = []  # the partition was restored
    assert Load(world.context()).run().left_out is None
    assert numbers(world) == list(range(30))


@pytest.mark.parametrize("first", [False, True])
def test_a_damaged_batch_is_skipped_and_counted_everywhere(
    world: World, tmp_path: Path, first: bool
) -> None:
    damaged_world(world)
    if first:
        Load(world.context()).run()
    report = Load(world.context(skip_damaged=True, now=lambda: 7200.0)).run()
    assert report.left_out is None
    assert numbers(world) == sorted({*range(30)} - {*LOST})
    assert {t.topic: t.damaged for t in report.topics}["clicks"] == 2
    status = {t["topic"]: t["damaged"] for t in warehouse_status(world.root)["topics"]}
    assert status == {"clicks": 2, "other": 0}
    metrics = LoaderMetrics(world.root)
    metrics.write(tmp_path / "m.prom")
    assert 'topic_damaged{topic="clicks"} 2.0' in (tmp_path / "m.prom").read_text()
    events = [e for c in world.published for e in audit_events(c, warehouse="w", host="h")]
    assert [e["window_start"] for e in events if "damaged" in e["counts"]] == [0]
    assert sum(e["counts"].get("damaged", 0) for e in events) == 2
    assert sum(e["counts"].get("loaded", 0) for e in events if e["topic"] == "clicks") == 28
    assert Load(world.context()).run().committed is False


def test_a_batch_in_the_middle_of_a_partition_that_several_tasks_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks behind the damage have read messages that must not be committed."""
    monkeypatch.setattr("hadoop_loader._fetch.ranges.MIN_SPLIT_OFFSETS", 2)
    monkeypatch.setattr("hadoop_loader._fetch.ranges.OPEN_COST_BYTES", 0.0)
    damaged_world(world)
    world.log.damaged.append(DamagedRange("clicks", 1, 8, 9))
    report = Load(world.context(tasks=4)).run()
    assert report.damaged[0].offsets == {1: 4}
    assert numbers(world) == sorted({*range(30)} - {*LOST, *BEHIND})
    skipped = Load(world.context(tasks=4, skip_damaged=True)).run()
    assert numbers(world) == sorted({*range(30)} - {*LOST, 25})
    assert skipped.topics[0].damaged == 3


def test_a_topic_that_begins_with_a_damaged_batch_commits_nothing(world: World) -> None:
    world.register("clicks", V1)
    for n in range(0, 9, 3):
        click(world, n)
    Load(world.context()).run()
    click(world, 9)
    world.log.damaged = [DamagedRange("clicks", 0, 3, 4)]
    for _ in range(2):
        report = Load(world.context()).run()
        assert (report.committed, report.number) == (False, 1)
        assert report.damaged[0].offsets == {0: 3}


def test_a_rewind_over_a_damaged_batch_replaces_nothing(world: World) -> None:
    damaged_world(world)
    Load(world.context(skip_damaged=True)).run()
    with pytest.raises(CorruptError, match="is damaged at 4"):
        Rewind(world.context()).run("clicks", RewindPosition.parse("earliest"))
    assert numbers(world) == sorted({*range(30)} - {*LOST})


# The same on a real broker, whose files are changed on disk.


class Log:
    """A topic of 40 events in batches of 10 on the real broker, and its file."""

    def __init__(self, broker: Service, folder: Path, registry: RegistryClient) -> None:
        self.topic = f"damage.load{next(_numbers)}"
        schema = {**V1, "headworks": {**V1.get("headworks", {}), "topic": self.topic}}
        writer = registry.register(subject_of(self.topic), json.dumps(schema)).id
        values = [encoded(V1, {"at": 0, "n": n}, writer) for n in range(40)]
        assert values[0].startswith(prefix(writer))
        produce_batches(broker.address, self.topic, values)
        self.path = segment(folder, self.topic)
        self.headers = batches(self.path)
        self.client = client_properties(broker.address)

    def break_batch(self, at: int, kind: str) -> None:
        batch = self.headers[at]
        places = {"value": None, "attributes": 22, "length": 8, "magic": 16}
        if kind in places:
            flip_bit(self.path, batch, places[kind])
        else:
            self._make_records_wrong(batch)

    def _make_records_wrong(self, batch: Batch) -> None:
        """Change the length of the first record, and give the batch a CRC that fits."""
        data = bytearray(self.path.read_bytes())
        data[batch.position + 61] = 126
        body = bytes(data[batch.position + 21 : batch.position + batch.size])
        struct.pack_into(">I", data, batch.position + 17, crc32c(body))
        with self.path.open("r+b") as file:
            file.write(data)

    def read(
        self, fetcher: BrokerFetcher | KafkaFetcher, damage: DamageReport | None, start: int = 0
    ) -> list[int]:
        wanted = [FetchRange(self.topic, 0, start, 40)]
        return [m.offset for _, part in fetcher.fetch(wanted, damage) for m in part]


@pytest.fixture
def log(broker: Service, broker_folder: Path, registry: Service) -> Log:
    return Log(broker, broker_folder, RegistryClient(registry.url))


@contextmanager
def fetcher(log: Log, kind: type) -> Iterator[Any]:
    """A fetcher, closed if it has connections."""
    found = kind(log.client, timeout=20)
    yield found
    if isinstance(found, BrokerFetcher):
        found.close()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        (BrokerFetcher, "value"),
        (BrokerFetcher, "attributes"),
        (BrokerFetcher, "records"),
        (KafkaFetcher, "value"),
        (KafkaFetcher, "attributes"),
    ],
)
def test_a_fetch_steps_over_exactly_the_damaged_batch(log: Log, reader: type, kind: str) -> None:
    log.break_batch(1, kind)
    stopped, skipped, inside = (DamageReport(skip=skip) for skip in (False, True, True))
    with fetcher(log, reader) as reading:
        assert log.read(reading, stopped) == list(range(10))
        assert [(d.topic, d.start, d.size) for d in stopped.found] == [(log.topic, 10, 0)]
        assert log.read(reading, skipped) == [*range(10), *range(20, 40)]
        assert [(d.start, d.end) for d in skipped.found] == [(10, 20)]
        assert log.read(reading, inside, 13) == list(range(20, 40))
        assert [(d.start, d.end) for d in inside.found] == [(13, 20)]
        with pytest.raises(CorruptError, match=log.topic) as caught:
            log.read(reading, None)
    assert kind == "records" or isinstance(caught.value, DamagedBatchError)


@pytest.mark.e2e
@pytest.mark.parametrize("reader", [BrokerFetcher, KafkaFetcher])
@pytest.mark.parametrize("kind", ["length", "magic"])
def test_what_the_broker_cannot_find_behind_the_damage_is_skipped_and_counted(
    log: Log, reader: type, kind: str
) -> None:
    log.break_batch(1, kind)
    stopped, skipped = DamageReport(skip=False), DamageReport(skip=True)
    with fetcher(log, reader) as reading:
        assert log.read(reading, stopped) == list(range(10))
        assert [(d.start, d.size) for d in stopped.found] == [(10, 0)]
        found = log.read(reading, skipped)
    counted = {offset for d in skipped.found for offset in range(d.start, d.end)}
    assert sorted([*found, *counted]) == list(range(40))
    assert found[:10] == list(range(10))


@pytest.mark.e2e
@pytest.mark.parametrize("reader", [BrokerFetcher, KafkaFetcher])
def test_several_damaged_batches_and_one_at_the_end(log: Log, reader: type) -> None:
    for at in (0, 1, 3):
        log.break_batch(at, "value")
    damage = DamageReport(skip=True)
    with fetcher(log, reader) as reading:
        assert log.read(reading, damage) == list(range(20, 30))
    # A broker that knows of the first two already reports them as one.
    skipped = [offset for d in damage.found for offset in range(d.start, d.end)]
    assert skipped == [*range(20), *range(30, 40)]


@pytest.mark.e2e
def test_a_load_of_a_topic_with_a_flipped_bit(
    log: Log, broker: Service, broker_folder: Path, registry: Service, tmp_path: Path
) -> None:
    good = Log(broker, broker_folder, RegistryClient(registry.url))
    log.break_batch(2, "value")

    def load(*, skip: bool) -> LoadReport:
        context = loader_context(broker.address, registry.url, tmp_path)
        policy = Policy(allow=f"{log.topic}|{good.topic}", skip_damaged=skip)
        return Load(replace(context, policy=policy)).run()

    report = load(skip=False)
    assert {t.topic: t.rows for t in report.topics} == {log.topic: 20, good.topic: 40}
    assert f"{log.topic} partition 0 offset 20: " in report.damaged[0].reason
    status = warehouse_status(tmp_path, broker.address)
    assert status["broker_error"] is None
    behind = {t["topic"]: (t["lag_messages"], t["lag_minutes"]) for t in status["topics"]}
    assert behind == {log.topic: (20, None), good.topic: (0, 0.0)}
    report = load(skip=True)
    assert [(t.topic, t.rows, t.damaged) for t in report.topics] == [(log.topic, 10, 10)]
