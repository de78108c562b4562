"""The console's pages over two large installations: every list, and the pages of one thing.

Broker, registry and reconciler's store are real, with generated state: topics, subjects with
versions, groups, windows of ten minutes. One installation has many topics and a few hours of
windows. The other has the size of LinkedIn's pipeline: 400 topics, 40,000 schema versions, 1,000
hosts, and a year of windows. The time of a page is the client's, so it holds the server's whole
work. There is no peer that shows the same; the bars are absolute.
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

from bench.console import year
from bench.frame import Bench
from bench.processes import Usage
from bench.registry.load import drive, post
from bench.registry.schemas import proposal
from bench.servers import registry_and_broker
from headworks._audit.increments import Increment
from headworks._audit.store import AuditStore
from headworks._audit.store.apply import IncrementBatch, apply
from headworks._audit_counting import WINDOW_MS, window_of
from headworks._server import child_process
from headworks.registry_client import RegistryClient

TITLE = "The console: pages over a large installation"
US = "headworks"
WINDOWS = 36
BAR_MS, YEAR_BAR_MS = 200.0, 300.0
UNSEEN = 15.0
_TOGETHER = 50
LISTS = ("/", "/topics", "/topics?sort=rate", "/schemas", "/groups", "/audit", "/loads")


# The pages of one thing, with a window of ten minutes in `{}`.
ONE = (
    "/schemas/topic-7-value/versions",
    "/groups/group-7/lag",
    "/audit/topic-7/windows",
    "/topics/topic-7/messages",
)
REST = (
    "/audit/topic-7/windows/{}",
    "/schemas/topic-7-value/usage",
    "/schemas?q=topic-39",
    "/topics/topic-7/charts",
    "/topics/topic-7/lineage",
    "/topics/topic-7/dead-letters",
    "/topics/topic-7/messages/0/0",
    "/lineage",
    "/quarantine",
    "/search?q=topic-39",
    "/try?subject=topic-7-value",
)


@dataclass(frozen=True, slots=True)
class Size:
    """How large the installation is; with `hosts`, the audit has `days` of their counts."""

    topics: int
    versions: int
    groups: int
    hosts: int = 0
    days: int = 0


def run(bench: Bench) -> None:
    """Measure everything."""
    size = Size(100, 500, 50) if bench.quick else Size(1_000, 5_000, 500)
    with _installation(bench, bench.folder / "lists", size) as places:
        # Once for the byte code, which an installed package brings along.
        with child_process.start(
            ["console", "start", "--listen", "127.0.0.1:0", *places], env=_compiled(bench.folder)
        ):
            pass
        for _ in bench.rounds(full=3):
            _round(bench, places)
    bench.bar(
        f"every list page at {size.topics:,} topics, {size.versions:,} versions and "
        f"{size.groups:,} groups, p95",
        at_most=BAR_MS,
        got=_worst(bench, [f"{path}, p95" for path in LISTS]),
        unit="ms",
    )
    bench.bar(
        "first page after the start", at_most=2.0, got=bench.median("first page", US), unit="s"
    )
    size = Size(40, 400, 20, 100, 7) if bench.quick else Size(400, 40_000, 100, 1_000, 365)
    with _installation(bench, bench.folder / "year", size) as places:
        names = _year(bench, places)
    bench.bar(
        f"every page at {size.topics:,} topics, {size.versions:,} versions, {size.hosts:,} hosts, "
        f"and {size.days} days of windows, p95",
        at_most=YEAR_BAR_MS,
        got=_worst(bench, names),
        unit="ms",
    )


def _worst(bench: Bench, names: Sequence[str]) -> float | None:
    medians = [bench.median(name, US) for name in names]
    return None if None in medians else max(one for one in medians if one is not None)


def _year(bench: Bench, places: Sequence[str]) -> list[str]:
    """Measure every page. Return the names of the measurements."""
    names = []
    start = ["console", "start", "--listen", "127.0.0.1:0", *places]
    with child_process.start(start, env=_compiled(bench.folder)) as console:
        _wait_until_known(console.address)
        window = window_of(int(time.time() * 1000)) - 2 * WINDOW_MS
        for path in (*LISTS, *ONE, *REST):
            asked = path.format(window)
            taken = [_timed(console.address, asked) for _ in range(20 if bench.quick else 40)]
            names.append(f"a year: {path}, p95")
            bench.record(names[-1], US, quantiles(taken, n=20)[-1], "ms")
        bench.record("a year: memory", US, Usage(console.process.pid).now().resident / 1e6, "MB")
    return names


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
        for path in (*LISTS, *ONE):
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
def _installation(bench: Bench, folder: Path, size: Size) -> Iterator[list[str]]:
    folder.mkdir()
    with registry_and_broker(folder) as (registry, broker):
        bench.say(f"making {size.topics:,} topics and {size.groups:,} groups")
        _fill_broker(broker.address, size)
        bench.say(f"registering {size.versions:,} versions")
        _fill_registry(registry, size)
        bench.say("counting windows")
        if size.hosts:
            _fill_year(folder / "audit.db", size, registry)
        else:
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


def _fill_year(file: Path, size: Size, registry: child_process.Service) -> None:
    client = RegistryClient(registry.url)
    latest = [client.latest(f"topic-{number}-value") for number in range(size.topics)]
    ids = [0 if one is None else one.id for one in latest]
    year.fill(file, year.Year(size.topics, size.hosts, size.days), lambda number: ids[number])


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
    until = time.monotonic() + 600  # to check an audit store of 8 GB by its seal
    for path in ("/topics.json", "/groups.json", "/home.json"):
        while b'"age_seconds": null' in _get(address, path):
            assert time.monotonic() < until, f"the console does not know what it shows: {path}"
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
