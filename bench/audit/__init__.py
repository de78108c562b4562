"""The audit: the cost of counting to a producer, and the reconciler's rate.

The producer runs in three ways, in turns of a few thousand messages:

- the same `send`;
- one that hears of each message's outcome and counts nothing, which every producer must do, because
  it answers for what it took;
- one that does neither.

The bar compares the first with the second, and a note compares the first with the third. Both are
medians of ratios within a turn, because the machine's speed changes more from second to second than
the difference to be measured. The order of the turns changes. Counting runs as installed, compiled
if there is a compiler. The second way hears in Python, as an application would.

The reconciler reads audit messages of 1,000 hosts and 367 topics from a real broker into SQLite on
disk. Its queries run on a store with a thousand topics.

The number of audit messages that 172,000 messages a second make depends on how many topics a host
writes to, and how often it reports. In the worst case, each of 1,000 hosts writes to each of 367
topics in every interval. That makes 6,117 a second with a report a minute, which is the bar. With
the SDK's default of ten seconds it makes 36,700. If a host writes to twenty topics, as one service
does, the default makes 2,000.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from statistics import median
from types import MethodType
from typing import Any

import confluent_kafka

from bench.audit import volumes
from bench.frame import Bench
from bench.sdk.events import TOPIC, Measured, prepare
from bench.servers import registry_and_broker
from headworks import _bundled_schemas
from headworks._audit import queries
from headworks._audit.increments import Increment
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._audit.store.apply import IncrementBatch, apply, positions
from headworks._audit_counting import AUDIT_TOPIC, WINDOW_MS
from headworks._audit_counting.event import AuditCount
from headworks._kafka.partitioner import ANY
from headworks._native import COMPILED
from headworks._wire import prefix
from headworks.codec import event_type
from headworks.registry_client import RegistryClient
from producer_sdk import Producer, WhenFull
from producer_sdk._context import Headers
from producer_sdk._transport import Transport

TITLE = "The audit: the cost of counting, and the reconciler"
US = "headworks"
UNCOUNTED = "delivery report, no count"
NEITHER = "neither report nor count"
_KEPT = "rate that is left of one with {}"
# The parameters of Transport.enqueue.
_Enqueue = Callable[[str, bytes, bytes | None, int, Headers | None, int, Any], bool]
HOSTS, TOPICS = 1_000, 367
A_MINUTE, DEFAULT = HOSTS * TOPICS / 60, HOSTS * TOPICS / 10


def run(bench: Bench) -> None:
    """Measure everything."""
    measured = prepare(bench.folder / "events")
    if not COMPILED:
        bench.missing(
            "headworks, compiled", "no compiler when it was installed: python hatch_build.py"
        )
    with registry_and_broker(bench.folder) as (registry, running):
        client = RegistryClient(registry.url)
        client.register(f"{TOPIC}-value", measured.text)
        text = _bundled_schemas.audit_schema()
        schema_id = client.register(f"{AUDIT_TOPIC}-value", text).id
        for number in bench.rounds(full=5):
            _send(bench, measured, running.address, registry.url)
            _reconcile(bench, running.address, registry.url, schema_id, number)
        _ask(bench)
        volumes.judge(bench, US)
    _bars(bench)


def _bars(bench: Bench) -> None:
    cost = _cost(bench, UNCOUNTED)
    bench.bar("counting costs a producer", at_most=5, got=cost, unit="% of its rate")
    both = _cost(bench, NEITHER)
    if both is not None:
        bench.note(f"count and delivery report together cost a producer {both:.1f} % of its rate")
    bench.bar(
        "reconcile, on one core",
        at_least=A_MINUTE,
        got=bench.median("reconcile, per second of CPU", US),
        unit="audit messages/s",
    )
    for what in ("heatmap", "topic page", "time to complete"):
        name = f"{what}, 1,000 topics"
        bench.bar(name, at_most=200, got=bench.median(name, US), unit="ms")
    bench.bar(volumes.NAME, at_most=1000, got=bench.median(volumes.NAME, US), unit="ms")
    bench.note(
        f"172,000 messages/s from {HOSTS:,} hosts to {TOPICS} topics make at most {A_MINUTE:,.0f} "
        f"audit messages/s with a report a minute, and {DEFAULT:,.0f} with one every 10 s"
    )


def _cost(bench: Bench, other: str) -> float | None:
    retention = bench.median(_KEPT.format(other), US)
    return None if retention is None else 100 - retention


def _send(bench: Bench, measured: Measured, bootstrap: str, registry: str) -> None:
    """All in turns, a little at a time, so that the machine is the same for all."""
    count, turns = 5_000, 10 if bench.quick else 80
    spent: dict[str, list[float]] = {US: [], UNCOUNTED: [], NEITHER: []}
    busy = dict.fromkeys(spent, 0.0)
    with Producer(
        bootstrap,
        registry,
        application="bench",
        events=(type(measured.event),),
        state_dir=bench.folder / "state",
        when_full=WhenFull.BLOCK,
        block_ms=60_000,
        audit_every=1.0,
    ) as producer:
        producer.send(measured.event)
        producer.flush(30)
        running = producer._start()
        ways: dict[str, _Enqueue] = {
            US: running.enqueue,
            UNCOUNTED: _uncounted(running, _heard),
            NEITHER: _uncounted(running, None),
        }
        for turn in range(turns):
            for who, enqueue in sorted(ways.items(), reverse=bool(turn % 2)):
                running.enqueue = enqueue  # type: ignore[assignment]
                began, cpu = time.perf_counter(), time.process_time()
                for _ in range(count):
                    producer.send(measured.event)
                producer.flush(60)
                spent[who].append(time.perf_counter() - began)
                busy[who] += time.process_time() - cpu
        del running.enqueue
    for who, seconds in spent.items():
        sent = count * turns
        each = busy[who] / sent * 1e6
        bench.record("send", who, sent / sum(seconds), "events/s", cpu=each, cpu_unit="us/event")
    for other in (UNCOUNTED, NEITHER):
        retention = [100 * b / a for a, b in zip(spent[US], spent[other], strict=True)]
        bench.record(_KEPT.format(other), US, median(retention), "%")


def _heard(_error: object, _message: object) -> None:
    """A delivery report of which nothing is made."""


def _uncounted(running: Transport, told: Any) -> _Enqueue:
    """As `Transport.enqueue`, but nothing counts the message; `told` is its delivery callback.

    It is a method that reads the same attributes, so that only the counting differs.
    """

    def enqueue(
        self: Transport,
        topic: str,
        value: bytes,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
        _wait_ms: int,
        _latest: object,
    ) -> bool:
        assert self._spill is None
        carried: dict[str, str | bytes | None] | None = None if headers is None else {**headers}
        while True:
            try:
                to = ANY if key is not None else self._partitioner.partition(topic)
                self.client.produce(topic, value, key, to, told, None, timestamp, carried)
            except BufferError:
                time.sleep(0.002)
                continue
            return True

    return MethodType(enqueue, running)


def _reports(chance: Random, count: int) -> Iterator[AuditCount]:
    """Reports as 1,000 hosts send them, each of some topic of 367."""
    now = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    for number in range(count):
        at = now + number / A_MINUTE
        n = 1 + chance.randrange(60)
        yield AuditCount(
            id=str(uuid.UUID(int=chance.getrandbits(128), version=5)),
            topic=f"activity.topic{chance.randrange(TOPICS):03}",
            tier="producer" if chance.random() < 0.8 else "consumer:feed",
            window_start=datetime.fromtimestamp(at - at % (WINDOW_MS / 1000), UTC),
            counts={"attempted": n, "delivered": n},
            bytes=n * 200,
            host=f"app{chance.randrange(HOSTS):04}.example.com",
            application="frontend",
            sent_at=datetime.fromtimestamp(at, UTC),
        )


def _reconcile(bench: Bench, bootstrap: str, registry: str, schema_id: int, number: int) -> None:
    count = 50_000 if bench.quick else 500_000
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    encode, head = event_type(AuditCount).encode, prefix(schema_id)
    for report in _reports(Random(number), count):
        while True:
            try:
                producer.produce(AUDIT_TOPIC, head + encode(report))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)
    store = AuditStore(f"sqlite:///{bench.folder / f'audit-{number}.db'}")
    try:
        with Reconciler(bootstrap, registry, store) as reconciler:
            began, cpu = time.perf_counter(), time.process_time()
            new = reconciler.catch_up()
            seconds, busy = time.perf_counter() - began, time.process_time() - cpu
    finally:
        store.close()
    bench.record("reconcile", US, new / seconds, "messages/s", cpu=busy / new * 1e6, cpu_unit="us")
    bench.record("reconcile, per second of CPU", US, new / busy, "messages/s")


def _ask(bench: Bench) -> None:
    """Questions to a store with a thousand topics, two tiers and a day."""
    topics, windows = 1_000, 36 if bench.quick else 144
    store = AuditStore(f"sqlite:///{bench.folder / 'questions.db'}")
    chance = Random(1)
    for window in range(windows):
        increments = []
        for topic in range(topics):
            n = 1 + chance.randrange(1000)
            for tier, counts in (
                ("producer", {"attempted": n, "delivered": n}),
                ("hadoop", {"loaded": n - (chance.random() < 0.01)}),
            ):
                start = window * WINDOW_MS
                key = str(uuid.UUID(int=chance.getrandbits(128), version=5))
                name = f"activity.topic{topic:04}"
                sent = start + WINDOW_MS + chance.randrange(300_000)
                increments.append(
                    Increment(key, name, tier, start, counts, n * 200, "host", "app", sent)
                )
        with store.read() as connection:
            start_at = positions(connection)
        apply(store, IncrementBatch(start_at, {0: window + 1}, increments, 0, live=False))
    now = windows * WINDOW_MS
    questions: dict[str, Callable[[], object]] = {
        "heatmap": lambda: queries.health(store, now=now),
        "topic page": lambda: queries.topic_audit(store, "activity.topic0500", now=now),
        "time to complete": lambda: queries.time_to_complete(
            store, "hadoop", since=now - 36 * WINDOW_MS
        ),
    }
    for _ in bench.rounds(full=20, quick=5):
        for what, ask in questions.items():
            began, cpu = time.perf_counter(), time.thread_time()
            ask()
            took, busy = time.perf_counter() - began, time.thread_time() - cpu
            name = f"{what}, 1,000 topics"
            bench.record(name, US, took * 1000, "ms", cpu=busy * 1000, cpu_unit="ms")
    store.close()
