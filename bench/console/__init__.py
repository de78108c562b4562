"""The console's pages over a large installation: every list, and the pages of one thing.

Broker, registry and reconciler's store are real, with generated state: topics, subjects with
versions, groups, windows of ten minutes. The time of a page is the client's, so it holds the
server's whole work. There is no peer that shows the same; the bars are absolute.
"""

from __future__ import annotations

import http.client
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.frame import Bench
from bench.processes import Usage
from bench.registry.load import drive, post
from bench.registry.schemas import proposal
from headworks._audit.increments import Increment
from headworks._audit.store import AuditStore
from headworks._audit.store.apply import IncrementBatch, apply
from headworks._audit_counting import WINDOW_MS, window_of
from headworks._server import child_process
from headworks.registry_client import RegistryClient

TITLE = "The console: pages over a large installation"
US = "headworks"
WINDOWS = 36
BAR_MS = 200.0
UNSEEN = 15.0
_TOGETHER = 50
LISTS = ("/", "/topics", "/topics?sort=rate", "/schemas", "/groups", "/audit", "/loads")


@dataclass(frozen=True, slots=True)
class Size:
    """How large the installation is."""

    topics: int
    versions: int
    groups: int


def run(bench: Bench) -> None:
    """Measure everything."""
    size = Size(100, 500, 50) if bench.quick else Size(1_000, 5_000, 500)
    with _installation(bench, size) as places:
        # Once for the byte code, which an installed package brings along.
        with child_process.start(
            ["console", "start", "--listen", "127.0.0.1:0", *places], env=_compiled(bench.folder)
        ):
            pass
        for _ in bench.rounds(full=3):
            _round(bench, places)
    worst = [bench.median(f"{path}, p95", US) for path in LISTS]
    bench.bar(
        f"every list page at {size.topics:,} topics, {size.versions:,} versions and "
        f"{size.groups:,} groups, p95",
        at_most=BAR_MS,
        got=None if None in worst else max(one for one in worst if one is not None),
        unit="ms",
    )
    bench.bar(
        "first page after the start", at_most=2.0, got=bench.median("first page", US), unit="s"
    )


def _compiled(folder: Path) -> dict[str, str]:
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def _round(bench: Bench, places: Sequence[str]) -> None:
    """One console, from its start."""
    began = time.monotonic()
    start = ["console", "start", "--listen", "127.0.0.1:0", *places]
    with child_process.start(start, env=_compiled(bench.folder)) as console:
        _get(console.address, "/")
        bench.record("first page", US, time.monotonic() - began, "s")
        _wait_until_known(console.address)
        bench.record("everything known", US, time.monotonic() - began, "s")
        count = 20 if bench.quick else 100
        one = ("/schemas/topic-7-value/versions", "/groups/group-7/lag", "/audit/topic-7/windows")
        for path in (*LISTS, *one, "/topics/topic-7/messages"):
            taken = sorted(_timed(console.address, path) for _ in range(count))
            bench.record(f"{path}, p50", US, taken[len(taken) // 2], "ms")
            bench.record(f"{path}, p95", US, quantiles(taken, n=20)[-1], "ms")
        time.sleep(UNSEEN + 10)  # until it has seen that nobody looks
        usage = Usage(console.process.pid)
        before, at = usage.now(), time.monotonic()
        time.sleep(5.0 if bench.quick else 30.0)
        after = usage.now()
        share = (after.cpu - before.cpu) / (time.monotonic() - at)
        bench.record("CPU while nobody looks", US, 100 * share, "% of a core")
        bench.record("memory", US, after.resident / 1e6, "MB")


@contextmanager
def _installation(bench: Bench, size: Size) -> Iterator[list[str]]:
    folder = bench.folder
    store = f"sqlite:///{folder / 'registry.db'}"
    start_registry = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    start_broker = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder)]
    with (
        child_process.start(start_registry) as registry,
        child_process.start(start_broker) as broker,
    ):
        bench.say(f"making {size.topics:,} topics and {size.groups:,} groups")
        _fill_broker(broker.address, size)
        bench.say(f"registering {size.versions:,} versions")
        _fill_registry(registry, size)
        bench.say("counting windows")
        _fill_audit(folder / "audit.db", size)
        places = ["--bootstrap", broker.address, "--registry", registry.url]
        places += ["--warehouse", str(folder / "warehouse")]
        yield [*places, "--audit-store", f"sqlite:///{folder / 'audit.db'}"]


def _fill_broker(address: str, size: Size) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    names = [f"topic-{number}" for number in range(size.topics)]
    for some in _batches(names):
        for future in admin.create_topics([NewTopic(name, 4, 1) for name in some]).values():
            future.result(60)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50})
    for number in range(2_000):
        producer.produce("topic-7", b'{"number": %d}' % number)
    for name in names:
        producer.produce(name, b"{}", partition=0)
        producer.poll(0)
    producer.flush(60)
    groups = [f"group-{number}" for number in range(size.groups)]
    for some in _batches(groups):
        for name in some:
            places = [
                TopicPartition(names[(int(name[6:]) * 7 + step) % len(names)], 0, 0)
                for step in range(3)
            ]
            asked = [ConsumerGroupTopicPartitions(name, places)]
            for future in admin.alter_consumer_group_offsets(asked).values():
                future.result(60)


def _fill_registry(registry: child_process.Service, size: Size) -> None:
    RegistryClient(registry.url).set_compatibility(None, "NONE")
    every = size.versions // size.topics
    bodies = (
        post(f"/subjects/topic-{number}-value/versions", proposal(20, number * 100 + one))
        for number, one in itertools.product(range(size.topics), range(every))
    )
    drive(registry.address, bodies, connections=4, most=size.topics * every)


def _fill_audit(file: Path, size: Size) -> None:
    store = AuditStore(f"sqlite:///{file}")
    now = int(time.time() * 1000)
    for number in range(size.topics):
        made = list(_increments(number, now))
        apply(
            store, IncrementBatch({0: number} if number else {}, {0: number + 1}, made, now, False)
        )
    store.close()


def _increments(number: int, now: int) -> Iterator[Increment]:
    for window in range(WINDOWS):
        start = window_of(now) - window * WINDOW_MS
        lost = 3 if (number + window) % 97 == 0 else 0
        for tier, counts in (
            ("producer", {"attempted": 1_000, "delivered": 1_000}),
            ("hadoop", {"loaded": 1_000 - lost}),
        ):
            name = f"{number:08x}-{window:04x}-4000-8000-{len(tier):012x}"
            yield Increment(
                name, f"topic-{number}", tier, start, counts, 50_000, "host", "bench", now
            )


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _TOGETHER):
        yield names[start : start + _TOGETHER]


def _wait_until_known(address: str) -> None:
    until = time.monotonic() + 120
    for path in ("/topics.json", "/groups.json", "/home.json"):
        while b'"age_seconds": null' in _get(address, path) and time.monotonic() < until:
            time.sleep(0.05)


def _timed(address: str, path: str) -> float:
    began = time.perf_counter()
    _get(address, path)
    return (time.perf_counter() - began) * 1000


def _get(address: str, path: str) -> bytes:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body: Any = answer.read()
        assert answer.status == 200, (path, answer.status)
        return bytes(body)
    finally:
        connection.close()
