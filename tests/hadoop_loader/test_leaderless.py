"""One broker of several is dead: its partitions are skipped and reported, the rest is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.kafka_log import KafkaFetcher, KafkaLog
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._fetch.ranges import Watermarks
from hadoop_loader._operations.audit_counts import CommitCountsPublisher
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.metrics import LoaderMetrics
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._operations.status import warehouse_status
from hadoop_loader._tasks.load_task import LoadTask, TaskManifest, run_load_task
from headworks._kafka.client_properties import client_properties
from headworks._kafka.log_offsets import EARLIEST, LATEST
from headworks._server.child_process import Service
from headworks.errors import UnreachableError
from headworks.registry_client import RegistryClient
from tests.broker.clients import eventually
from tests.broker.cluster import Cluster, cluster
from tests.hadoop_loader.memory import MemoryJobs, World, encoded
from tests.hadoop_loader.test_loading import V1, click, numbers
from tests.waiting import within_some_time

pytestmark = pytest.mark.unit

TOPICS = [f"leaderless.{n}" for n in range(6)]
KEPT, GONE = "one_that_is_kept", "one_that_is_gone"


def test_partitions_without_a_leader_are_left_out_and_told(
    world: World, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    world.register("clicks", V1)
    for n in range(6):
        click(world, n)
    world.log.leaderless = {("clicks", 1)}
    first = Load(world.context()).run()
    assert numbers(world) == [0, 2, 3, 5]
    (left,) = first.leaderless
    assert (left.topic, left.offsets) == ("clicks", {1: None})
    assert left.reason.startswith("no leader answers for partition 1 of clicks\n  fix: start ")
    assert first.left_out == "partitions without a leader: 1"
    assert "partition 1 of clicks; their offsets stay: nothing was loaded yet" in caplog.text

    world.log.leaderless = {("clicks", 2), ("clicks", 0)}
    for n in range(6, 9):
        click(world, n)
    second = Load(world.context()).run()
    assert numbers(world) == [0, 1, 2, 3, 4, 5, 7]
    assert second.leaderless[0].offsets == {0: 2, 2: 2}
    assert "their offsets stay: 0 at 2, 2 at 2" in caplog.text
    idle = Load(world.context()).run()
    assert (idle.committed, idle.leaderless) == (False, second.leaderless)
    status = warehouse_status(world.root)
    assert [one["offsets"] for one in status["leaderless"]] == [{"0": 2, "2": 2}]
    metrics = LoaderMetrics(world.root)
    metrics.loaded(idle)
    metrics.write(tmp_path / "m.prom")
    assert "headworks_loader_partitions_leaderless 2.0" in (tmp_path / "m.prom").read_text()

    world.log.leaderless = set()
    last = Load(world.context()).run()
    assert (last.leaderless, last.left_out) == ((), None)
    assert last.topics[0].offsets == {0: (2, 3), 2: (2, 3)}
    assert numbers(world) == list(range(9))
    assert warehouse_status(world.root)["leaderless"] == []


def test_a_refused_topic_is_reported_once(world: World) -> None:
    world.register("clicks", V1)
    for n in range(3):
        click(world, n)
    Load(world.context()).run()
    world.log.low["clicks", 0] = 5
    world.log.leaderless = {("clicks", 1)}
    report = Load(world.context()).run()
    assert [refusal.topic for refusal in report.refused] == ["clicks"]
    assert report.leaderless == ()
    assert report.left_out == "topics not loaded: 1"


def test_a_rewind_leaves_nothing_out(world: World) -> None:
    world.register("clicks", V1)
    for n in range(9):
        click(world, n)
    Load(world.context()).run()
    world.log.leaderless = {("clicks", 1)}
    for to in ("earliest", "1", "1:1", "1970-01-01T00:00:00Z"):
        with pytest.raises(UnreachableError, match="no leader answers for partition 1 of clicks"):
            Rewind(world.context()).run("clicks", RewindPosition.parse(to))
    report = Rewind(world.context()).run("clicks", RewindPosition.parse("2:1"))
    assert report.topics[0].offsets == {2: (1, 3)}


def test_a_partition_that_is_emptied_while_it_is_asked_for_has_an_end_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broker:
        def __init__(self, settings: object) -> None: ...

        def list_offsets(self, asked: dict[Any, Any], **_: object) -> dict[Any, Any]:
            # The answer about the end is older than what retention removed.
            told = {EARLIEST: 12, LATEST: 10}
            return {
                at: SimpleNamespace(result=lambda _, s=spec: SimpleNamespace(offset=told[s]))
                for at, spec in asked.items()
            }

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", Broker)
    log = KafkaLog({"bootstrap.servers": "b:1"})
    assert log.watermarks({"clicks": [0]}) == {"clicks": {0: Watermarks(12, 12)}}


class ReadingJobs(MemoryJobs):
    """Bins that are read from brokers, in this process."""

    def __init__(self, client: dict[str, Any], timeout: float = 20) -> None:
        self._client, self._timeout = client, timeout

    def load(self, tasks: Sequence[LoadTask]) -> list[TaskManifest]:
        with BrokerFetcher(self._client, timeout=self._timeout) as fetcher:
            return [run_load_task(task, fetcher) for task in tasks]


class LibrdkafkaJobs(ReadingJobs):
    """Bins that librdkafka reads."""

    def load(self, tasks: Sequence[LoadTask]) -> list[TaskManifest]:
        client = {**self._client, "topic.metadata.propagation.max.ms": 100}
        fetcher = KafkaFetcher(client, timeout=self._timeout)
        return [run_load_task(task, fetcher) for task in tasks]


def produce(brokers: Cluster, numbers: Sequence[int]) -> None:
    """One event with each number into each partition of each topic."""
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    for topic in TOPICS:
        for n in numbers:
            producer.produce(topic, encoded(V1, {"at": 0, "n": n}), partition=n % 2)
    assert producer.flush(60) == 0


@pytest.mark.e2e
def test_one_of_two_brokers_dies(world: World, registry: Service, tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", 2) as brokers:
        client = client_properties(brokers.bootstrap) | {"log_level": 0}
        admin = AdminClient(client)
        names = [*TOPICS, "headworks.audit"]
        for done in admin.create_topics([NewTopic(name, 2) for name in names]).values():
            done.result()
        for topic in TOPICS:
            world.register(topic, V1)
            eventually(lambda t=topic: -1 not in brokers.brokers[1].leaders(t).values())  # type: ignore[misc]
        produce(brokers, range(4))
        world.subjects = dict.fromkeys(TOPICS, world.subjects[TOPICS[0]])
        context = world.context(
            broker=KafkaLog(client, timeout=30),
            jobs=ReadingJobs(client),
            publish=CommitCountsPublisher(client, RegistryClient(registry.url), "w"),
        )
        led = {t: {p for p, b in brokers.brokers[1].leaders(t).items() if b == 1} for t in TOPICS}
        away = {t: {0, 1} - led[t] for t in TOPICS}
        assert any(led.values())
        assert any(away.values())

        brokers.brokers[2].kill()
        # Until ZooKeeper gives it up it is named as leader, and does not answer; then nobody is.
        led_ends = {t: {p: Watermarks(0, 2) for p in led[t]} for t in TOPICS}

        def check(seconds: float) -> None:
            try:
                marks = KafkaLog(client, timeout=seconds).watermarks({t: [0, 1] for t in TOPICS})
            except UnreachableError as error:
                raise AssertionError("the living broker does not answer") from error
            assert marks == led_ends

        within_some_time(check, 8.0, 60.0)
        for topic in (t for t in TOPICS if away[t]):
            eventually(lambda t=topic: -1 in brokers.brokers[1].leaders(t).values())  # type: ignore[misc]
        report = Load(context).run()
        assert report.refused == ()
        assert {one.topic: set(one.offsets) for one in report.leaderless} == {
            t: ps for t, ps in away.items() if ps
        }
        assert report.rows == 2 * sum(map(len, led.values()))
        missing = next(t for t in TOPICS if away[t])
        with pytest.raises(UnreachableError, match="no leader answers for any of 1 part"):
            context.broker.watermarks({missing: sorted(away[missing])})

        brokers.brokers[2].start()
        for topic in TOPICS:
            eventually(lambda t=topic: -1 not in brokers.brokers[1].leaders(t).values())  # type: ignore[misc]
        eventually(lambda: Load(context).run().leaderless == ())
        for topic in TOPICS:
            assert numbers(world, topic.replace(".", "_")) == [0, 1, 2, 3]


class DeletingLog(KafkaLog):
    """Topics of which one is deleted as soon as they were listed."""

    gone = ""  # its name

    def partitions(self) -> Mapping[str, Sequence[int]]:
        found = super().partitions()
        self._admin.delete_topics([self.gone])[self.gone].result(60)
        return found


def written(world: World, broker: Service, *topics: str) -> dict[str, Any]:
    """A client of a broker with an event in each of these topics."""
    client = client_properties(broker.address) | {"log_level": 0}
    producer = Producer(client)
    for topic in topics:
        world.register(topic, V1)
        producer.produce(topic, encoded(V1, {"at": 0, "n": 7}), partition=0)
    assert producer.flush(60) == 0
    world.subjects = dict.fromkeys(topics, world.subjects[topics[0]])
    return client


def check_only_kept(context: LoaderContext, kept: str, gone: str) -> None:
    report = Load(context).run()
    assert ([one.topic for one in report.topics], report.rows) == ([kept], 1)
    (left,) = report.leaderless
    assert (left.topic, {*left.offsets.values()}) == (gone, {None})


@pytest.mark.e2e
def test_a_topic_deleted_after_it_was_listed_delays_no_other(
    world: World, broker: Service, registry: Service
) -> None:
    client = written(world, broker, KEPT, GONE)
    log = DeletingLog(client)
    log.gone = GONE
    context = world.context(
        broker=log,
        jobs=ReadingJobs(client),
        publish=CommitCountsPublisher(client, RegistryClient(registry.url), "w"),
        policy=Policy(allow=f"{KEPT}|{GONE}"),
    )
    check_only_kept(context, KEPT, GONE)
    after = Load(replace(context, broker=KafkaLog(client))).run()
    assert (after.left_out, numbers(world, KEPT)) == (None, [7])


@pytest.mark.e2e
@pytest.mark.parametrize("jobs", [ReadingJobs, LibrdkafkaJobs])
def test_a_topic_deleted_while_it_is_read_delays_no_other(
    world: World, broker: Service, registry: Service, jobs: type[ReadingJobs]
) -> None:
    kept, gone = (f"{name}_by_{jobs.__name__}" for name in (KEPT, GONE))
    client = written(world, broker, kept, gone)
    admin = AdminClient(client)

    def delete(step: str) -> None:
        if step == "planned":
            admin.delete_topics([gone])[gone].result(60)

    context = world.context(
        broker=KafkaLog(client),
        jobs=jobs(client, timeout=3),
        publish=CommitCountsPublisher(client, RegistryClient(registry.url), "w"),
        policy=Policy(allow=f"{kept}|{gone}"),
        on_step=delete,
    )
    check_only_kept(context, kept, gone)
    after = Load(replace(context, on_step=lambda _: None)).run()
    assert (after.committed, after.left_out) == (False, None)
