"""A small installation with everything in it that a screen shows: the demo's real events in a
running stack, consumer groups, loads in a commit log, and the audit of it all.

The loads are written by the loader's own commit log, without Spark, so that it takes seconds;
one of them leaves messages out, so that there is something to see in the audit.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from consumer_sdk import Consumer
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, TableState, TopicCommit, checksum
from hadoop_loader._operations.audit_counts import CommitCountsPublisher
from hadoop_loader._tables.columns import table_name
from headworks import _bundled_schemas
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._audit.store.samples import SampleKind, add_samples
from headworks._audit_counting import window_of
from headworks._cli.demo.events import BUILDERS
from headworks._cli.demo.source import FlightData, Row
from headworks._cli.stack.stack import RunningStack, running_console, running_stack
from headworks._kafka.client_properties import client_properties
from headworks._server import child_process
from headworks._server.security.users import new_secret, write_users
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of
from producer_sdk import Producer
from producer_sdk._generator.package import generate, write
from tests.console.quarantined import put

TOPICS = ("airlines", "airports", "planes", "weather", "flights")
CHANGES = Path(__file__).parent.parent.parent / "cli" / "demo" / "changes"
SIGNUP = {
    "type": "record",
    "name": "Signup",
    "namespace": "web",
    "doc": "Somebody made an account.",
    "headworks": {"topic": "signups", "event_time": "at", "owner": "identity"},
    "fields": [
        {"name": "at", "doc": "When.", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "plan", "doc": "What was chosen.", "type": "string"},
        {"name": "email", "doc": "Where to write to.", "type": "string", "sensitive": True},
        {
            "name": "address",
            "doc": "Where they live.",
            "type": {
                "type": "record",
                "name": "Address",
                "doc": "A postal address.",
                "fields": [
                    {"name": "city", "doc": "The city.", "type": "string"},
                    {"name": "street", "doc": "The street.", "type": "string", "sensitive": True},
                ],
            },
        },
    ],
}
SECRETS = ("ada@example.org", "12 Difference Street")
# Messages that load 2 puts into quarantine: offset, reason, and schema id, by topic.
QUARANTINED: Mapping[str, tuple[tuple[int, str, int], ...]] = {
    "signups": ((2, f"{SECRETS[0]!r} is no enum symbol", 6), (5, "the datum ends too early", 6)),
    "weather": ((1, "schema id 9999 is no version of weather-value", 9999),),
}


@dataclass(frozen=True)
class Stage:
    """The running installation and its console."""

    url: str
    stack: RunningStack
    folder: Path

    @property
    def registry(self) -> RegistryClient:
        return RegistryClient(self.stack.registry.url)


@contextmanager
def staged(folder: Path, *, limit: int, sampled: bool = False) -> Iterator[Stage]:
    """Everything, running, over `folder`; `limit` rows of each table.

    `sampled`: the charts have two days of samples, which are made up.
    """
    with running_stack(folder) as stack:
        _govern(stack, folder)
        _produce(stack, folder, limit)
        _consume(stack, limit)
        _load(stack, folder)
        store = AuditStore(f"sqlite:///{folder / 'audit.db'}")
        with Reconciler(stack.broker.address, stack.registry.url, store) as reconciler:
            reconciler.settle()
        if sampled:
            _sample(store)
        store.close()
        with running_console(
            folder, broker=stack.broker.address, registry=stack.registry.url
        ) as console:
            yield Stage(console.url, stack, folder)


@contextmanager
def guarded_console(
    stage: Stage, folder: Path, passwords: Mapping[str, str], grants: str
) -> Iterator[str]:
    """The URL of one more console over the stage, with users and grants; its files in `folder`."""
    users, access = folder / "users", folder / "access.toml"
    write_users(users, {name: new_secret(password) for name, password in passwords.items()})
    access.write_text(grants, encoding="utf-8")
    arguments = ["console", "start", "--listen", "127.0.0.1:0", "--users", str(users)]
    arguments += ["--access", str(access)]
    arguments += ["--bootstrap", stage.stack.broker.address]
    arguments += ["--registry", stage.stack.registry.url]
    arguments += ["--warehouse", str(stage.folder / "warehouse")]
    arguments += ["--audit-store", f"sqlite:///{stage.folder / 'audit.db'}"]
    with child_process.start(arguments) as running:
        yield running.url


def _sample(store: AuditStore) -> None:
    """Add samples of two days: traffic by the hour, a group that keeps up, and one that stopped."""
    now = int(time.time() * 1000)
    minutes = [*range(-2_880, -180, 10), *range(-180, 0)]
    chance, ends = Random(1), dict.fromkeys(TOPICS, 0.0)
    last = minutes[0]
    for minute in minutes:
        traffic = 1.2 - math.cos(2 * math.pi * (minute / 1440 + 0.4))
        for topic, weight in zip(ends, (1, 2, 4, 30, 80), strict=True):
            ends[topic] += weight * traffic * (minute - last) * chance.uniform(0.8, 1.2)
        stopped = max(0, 600 + minute)  # minutes
        found = {(SampleKind.LOG_END, topic): end for topic, end in ends.items()}
        lags = {"punctuality-dashboard": chance.uniform(0, 40), "archive-export": 70.0 * stopped}
        found |= {(SampleKind.GROUP_LAG, group): lag for group, lag in lags.items()}
        ages = {"punctuality-dashboard": chance.uniform(0, 900), "archive-export": 6e4 * stopped}
        found |= {(SampleKind.GROUP_AGE, group): age for group, age in ages.items()}
        add_samples(store, now + 60_000 * minute, found)
        last = minute


def _govern(stack: RunningStack, folder: Path) -> None:
    client = RegistryClient(stack.registry.url)
    client.set_compatibility(None, "BACKWARD_TRANSITIVE", "warehouse")
    first, second = folder / "schemas-1" / "nyc", folder / "schemas-2" / "nyc"
    for place in (first, second):
        place.mkdir(parents=True)
        for path in sorted((_bundled_schemas.folder() / "nyc").glob("*.avsc")):
            text = path.read_text(encoding="utf-8")
            if place is second and path.stem == "flights":
                text = (CHANGES / "flights-v2.avsc").read_text(encoding="utf-8")
            (place / path.name).write_text(text, encoding="utf-8")
            client.register(subject_of(path.stem), text)
    (first / "signup.avsc").write_text(json.dumps(SIGNUP), encoding="utf-8")
    client.register("signups-value", json.dumps(SIGNUP))


def _module(folder: Path, version: int, name: str) -> ModuleType:
    package = f"staged_{folder.name.replace('-', '_')}_{version}"
    if not (folder / package).exists():
        write(generate([folder / f"schemas-{version}"]), folder / package)
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(f"{package}.{name}")
    finally:
        sys.path.remove(str(folder))


def _rows(limit: int) -> dict[str, list[Row]]:
    """Rows of each table; few hours of weather, so that they share the windows of the flights."""
    reference = {topic: FlightData(limit).reference(topic) for topic in TOPICS[:3]}
    flights = FlightData(2 * limit).half_year("flights", 1)
    return {**reference, "weather": FlightData(80).half_year("weather", 1), "flights": flights}


def _produce(stack: RunningStack, folder: Path, limit: int) -> None:
    rows = _rows(limit)
    now = datetime.now(UTC)
    with Producer(
        stack.broker.address,
        stack.registry.url,
        application="departures-board",
        state_dir=folder / "producer",
        close_timeout=60.0,
    ) as producer:
        for version in (1, 2):
            module = _module(folder, version, "nyc")
            for topic in TOPICS if version == 1 else ("weather", "flights"):
                some, half = rows[topic], len(rows[topic]) // 2
                if topic in ("weather", "flights"):
                    some = some[:half] if version == 1 else some[half:]
                for event in BUILDERS[topic](module, some, now):
                    assert producer.send(event)
        web: Any = _module(folder, 1, "web")
        for number in range(12):
            address = web.Address(city="London", street=SECRETS[1])
            plan = "free" if number % 3 else "paid"
            producer.send(web.Signup(at=now, plan=plan, email=SECRETS[0], address=address))


def _consume(stack: RunningStack, limit: int) -> None:
    for group, topics, most in (
        ("punctuality-dashboard", ["flights"], limit),
        ("archive-export", ["flights"], limit // 3),
    ):
        with Consumer[Any](
            topics=topics,
            group=group,
            bootstrap=stack.broker.address,
            registry=stack.registry.url,
            start="earliest",
            commit_every=None,
        ) as consumer:
            seen = 0
            while seen < most:
                seen += consumer.poll(1.0) is not None
            consumer.commit()


def _messages(bootstrap: str, topic: str) -> tuple[dict[int, tuple[int, int]], list[Any]]:
    consumer = confluent_kafka.Consumer(
        {**client_properties(bootstrap), "group.id": "stage", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        bounds = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60)
            for p in partitions
        }
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in bounds.items()])
        total, found = sum(high - low for low, high in bounds.values()), list[Any]()
        while len(found) < total:
            found += consumer.consume(total - len(found), timeout=5.0)
        return bounds, found
    finally:
        consumer.close()


def _load(stack: RunningStack, folder: Path) -> None:
    """Two loads: the reference tables, then all; the second misses a few of the newest weather."""
    bootstrap, client = stack.broker.address, RegistryClient(stack.registry.url)
    log = CommitLog(folder / "warehouse" / "_headworks")
    publish = CommitCountsPublisher(client_properties(bootstrap), client, str(folder / "warehouse"))
    offsets: dict[str, dict[str, int]] = {}
    tables: dict[str, TableState] = {}
    previous = None
    for number, topics in enumerate((TOPICS[:3], (*TOPICS[3:], "signups")), 1):
        found: dict[str, TopicCommit] = {}
        for topic in topics:
            bounds, messages = _messages(bootstrap, topic)
            if topic == "weather":
                messages = sorted(messages, key=lambda one: one.timestamp())[:-4]
            latest = client.latest(subject_of(topic))
            assert latest is not None
            key = log.schemas.put(latest.text)
            projection = [number, latest.version, latest.id, key]
            tables[topic] = TableState(
                *(table_name(topic), subject_of(topic), [projection]),
                rows=len(messages),
                files=1,
                load=number,
                loaded_ms=int(time.time() * 1000),
                quarantined=len(QUARANTINED.get(topic, ())),
            )
            offsets[topic] = {str(p): high for p, (_, high) in bounds.items()}
            found[topic] = _topic_commit(
                bounds, messages, latest.version, len(QUARANTINED.get(topic, ()))
            )
        created = int(time.time() * 1000)
        previous_checksum = checksum(previous)
        previous = Commit(number, created, previous_checksum, dict(offsets), dict(tables), found)
        log.create(previous)
        bad = [(topic, *one) for topic in found for one in QUARANTINED.get(topic, ())]
        if bad:
            put(folder / "warehouse", number, bad, created)
        publish(previous)
        log.mark_applied(number)


def _topic_commit(
    bounds: Mapping[int, tuple[int, int]], messages: list[Any], version: int, quarantined: int
) -> TopicCommit:
    windows: dict[str, dict[str, int]] = {}
    for one in messages:
        counts = windows.setdefault(str(window_of(one.timestamp()[1])), Counter())
        counts["loaded"] += 1
        counts["bytes"] += len(one.value())
    times = [one.timestamp()[1] for one in messages]
    return TopicCommit(
        {str(p): [low, high] for p, (low, high) in bounds.items() if high > low},
        len(messages),
        sum(len(one.value()) for one in messages),
        quarantined,
        0,
        1,
        {str(version): len(messages)},
        windows,
        min(times),
        max(times),
    )
