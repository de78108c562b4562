"""The size of LinkedIn's pipeline on one machine: 40,000 schemas, and 400 topics to load.

Registry and broker are real. The registry holds 100 versions of each topic's schema, as after
years. Measured are its start and its answers, and the driver's plan of a load: every partition's
ends, every schema, and every range. There is no peer that does the same; the bars are absolute.
`bench console` measures the pages of an installation of this size.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.frame import Bench
from bench.processes import Usage
from bench.registry.load import Load, drive, get, post
from bench.registry.schemas import proposal
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.registry_subjects import RegistrySubjects
from hadoop_loader._commit.topic_plans import check_new_tables, plan_topics
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.ranges import FetchRange, new_ranges
from headworks._server import child_process
from headworks.registry_client import RegistryClient

TITLE = "The size of LinkedIn's pipeline: 40,000 schemas, and 400 topics to load"
US = "headworks"
FIRST, SECOND = "plan of the first load of a warehouse", "plan of a later load"
RESTARTED = "plan of a load after a restart"
_PLANS = FIRST, SECOND, RESTARTED
_FIELDS = 20
_AT_ONCE = 50  # topics that one request creates


@dataclass(frozen=True, slots=True)
class Size:
    """How large the installation is."""

    topics: int
    partitions: int  # of each topic
    versions: int  # of each topic's schema

    def __str__(self) -> str:
        return f"{self.topics} topics x {self.partitions} partitions, {self.schemas:,} schemas"

    @property
    def schemas(self) -> int:
        """All versions of all topics."""
        return self.topics * self.versions


def run(bench: Bench) -> None:
    """Measure everything."""
    size = Size(100, 8, 20) if bench.quick else Size(400, 8, 100)
    store = f"sqlite:///{bench.folder / 'registry.db'}"
    start_broker = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(bench.folder)]
    with child_process.start(start_broker) as broker:
        bench.say(f"making {size}")
        _make_topics(broker.address, size)
        with _registry(store) as registry:
            _register(registry, size)
        for _ in bench.rounds(full=3):
            began = time.monotonic()
            with _registry(store) as registry:
                bench.record("start of the registry", US, time.monotonic() - began, "s")
                _ask(bench, registry, size)
                _plan(bench, broker.address, registry.url, size)
                memory = Usage(registry.process.pid).now().resident / 1e6
                bench.record("memory of the registry", US, memory, "MB")
    for what in _PLANS:
        bench.bar(f"{what}: {size}", at_most=2.0, got=bench.median(what, US), unit="s")


@contextmanager
def _registry(store: str) -> Iterator[child_process.Service]:
    arguments = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    with child_process.start(arguments) as running:
        yield running


def _names(size: Size) -> list[str]:
    return [f"topic-{number}" for number in range(size.topics)]


def _make_topics(address: str, size: Size) -> None:
    admin, names = AdminClient({"bootstrap.servers": address}), _names(size)
    for start in range(0, len(names), _AT_ONCE):
        topics = [NewTopic(name, size.partitions, 1) for name in names[start : start + _AT_ONCE]]
        for future in admin.create_topics(topics).values():
            future.result(60)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50})
    for name, partition in itertools.product(names, range(size.partitions)):
        producer.produce(name, b"{}", partition=partition)
        producer.poll(0)
    if left := producer.flush(60):
        raise TimeoutError(f"{left} messages were not delivered")


def _register(registry: child_process.Service, size: Size) -> None:
    RegistryClient(registry.url).set_compatibility(None, "NONE")
    bodies = (
        post(f"/subjects/{name}-value/versions", proposal(_FIELDS, number))
        for version in range(size.versions)
        for number, name in enumerate(_names(size), size.topics * version)
    )
    drive(registry.address, bodies, connections=4, most=size.schemas)


def _ask(bench: Bench, registry: child_process.Service, size: Size) -> None:
    """Ask one after the other, as a client or a person does."""
    RegistryClient(registry.url).set_compatibility(None, "BACKWARD")
    count = 50 if bench.quick else 400
    names = itertools.cycle(_names(size))
    ids = itertools.count(1, 7)
    new = itertools.count(10**6 + time.monotonic_ns() % 10**9)
    asked: dict[str, Iterator[bytes]] = {
        "schema by id": (get(f"/schemas/ids/{1 + next(ids) % size.schemas}") for _ in ids),
        "latest version": (get(f"/subjects/{n}-value/versions/latest") for n in names),
        "list of subjects": itertools.repeat(get("/subjects")),
        "list of versions": (get(f"/subjects/{n}-value/versions") for n in names),
        "check against the latest version": (
            post(f"/compatibility/subjects/{n}-value/versions/latest", proposal(_FIELDS, next(new)))
            for n in names
        ),
        "registration": (
            post(f"/subjects/{n}-value/versions", proposal(_FIELDS, next(new))) for n in names
        ),
    }
    for what, requests in asked.items():
        _record(bench, what, drive(registry.address, requests, connections=1, most=count))


def _record(bench: Bench, what: str, load: Load) -> None:
    bench.record(f"{what}, p50", US, load.percentile_ms(0.5), "ms")
    bench.record(f"{what}, p95", US, load.percentile_ms(0.95), "ms")


def _plan(bench: Bench, broker: str, registry: str, size: Size) -> None:
    """Plan the first load of a warehouse, a second one, and one of a loader that was restarted."""
    cache = bench.folder / "registry-versions"
    cache.unlink(missing_ok=True)
    for what in _PLANS:
        if what != SECOND:
            log = KafkaLog({"bootstrap.servers": broker})
            subjects = RegistrySubjects(RegistryClient(registry), cache=cache)
        began, spent = time.monotonic(), time.process_time()
        ranges = _ranges(log, subjects, bench.folder / "warehouse")
        took, cpu = time.monotonic() - began, time.process_time() - spent
        assert len(ranges) == size.topics * size.partitions
        bench.record(what, US, took, "s", cpu=cpu, cpu_unit="s")


def _ranges(log: KafkaLog, subjects: RegistrySubjects, root: Path) -> Sequence[FetchRange]:
    topics = log.partitions()
    subjects.prefetch(topics, check_new_tables)
    log.identify(topics)
    marks = log.watermarks(topics)
    chosen = plan_topics(marks, subjects.versions, None, CommitLog(root), Policy())
    return [
        one
        for topic in chosen.plans
        for one in new_ranges(topic, {}, marks[topic], skip_lost=False)[0]
    ]
