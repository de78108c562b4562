"""The producer's contract, line by line; docs/producer_sdk.md says which test proves which line.

What other files prove (ends of processes, spills, headers, fixtures) is not repeated here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headworks._audit.reader import read_ledger
from headworks._audit_counting import window_of
from headworks._kafka.records.batch import read_header
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.errors import UnreachableError
from headworks.registry_client import RegistryClient, _schema_ids
from producer_sdk import Producer, WhenFull
from producer_sdk._hung_broker import HungBroker
from tests.headworks.codec.generated_packages import build
from tests.producer_sdk.accounts import log
from tests.producer_sdk.events import AT, Site, new_site
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


@pytest.fixture
def known(site: Site) -> Site:
    """A site whose schema a producer has looked up before."""
    producer(site, events=(site.one.Visit,)).close()
    return site


def producer(site: Site, **more: Any) -> Producer:
    options = {"application": "test", "state_dir": site.state, "close_timeout": 60.0, **more}
    options.setdefault("audit_every", 3600)  # counts stay to be seen, however slow the machine is
    return Producer(
        options.pop("bootstrap", site.bootstrap), options.pop("registry", site.registry), **options
    )


def test_asend_lets_the_loop_run_while_it_waits(known: Site, hung_broker: HungBroker) -> None:
    async def turns_while_it_waits(to: Producer) -> int:
        await to.asend(known.visit())  # a heartbeat of the audit may fill the queue, too
        turns = 0
        waiting = asyncio.ensure_future(to.asend(known.visit()))
        while not waiting.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert not await waiting
        return turns

    seen = []
    for block_ms in (500, 5_000, 20_000):  # if the machine stands still, longer than that
        to = producer(
            known,
            bootstrap=hung_broker.address,
            when_full=WhenFull.BLOCK,
            block_ms=block_ms,
            queue_messages=1,
            close_timeout=0.1,
        )
        seen.append(asyncio.run(turns_while_it_waits(to)))
        to.close()
        if seen[-1] > 10:
            return
    raise AssertionError(f"the loop turned {seen} times")


def test_what_is_dropped_and_why(known: Site, hung_broker: HungBroker) -> None:
    to = producer(
        known,
        bootstrap=hung_broker.address,
        queue_messages=10,
        close_timeout=0.1,
        config={"message.max.bytes": 2000},
    )
    assert not to.send(known.visit("x" * 5000))
    for _ in range(10):
        assert to.send(known.visit())
    assert not to.send(known.visit())
    counts = to.counts()
    assert (counts["attempted"], counts["dropped:too_large"], counts["dropped:queue_full"]) == (
        12,
        1,
        1,
    )
    counters = to._start().counters
    counters.close, closed = lambda **_: None, counters.close  # type: ignore[method-assign]
    assert to.close() == 10
    assert counters.unpublished()["dropped:closed"] == 10
    closed()


def test_what_times_out(known: Site, hung_broker: HungBroker) -> None:
    to = producer(
        known,
        bootstrap=hung_broker.address,
        close_timeout=0.1,
        config={"message.timeout.ms": 100},
    )
    to.send(known.visit())
    assert to.flush(60) == 0
    assert to.counts()["dropped:timed_out"] == 1
    to.close()


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("strict")
    command = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder)]
    with child_process.start([*command, "--no-auto-create"]) as running:
        yield running


def test_what_the_broker_refuses_fails(known: Site, strict_broker: Service) -> None:
    to = producer(
        known,
        bootstrap=strict_broker.address,
        close_timeout=0.1,
        config={"topic.metadata.propagation.max.ms": 100},
    )
    assert to.send(known.visit())
    assert to.flush(60) == 0
    assert to.counts()["failed"] == 1
    assert not to.send(known.visit())  # the client knows by now that there is no such topic
    assert to.counts()["dropped:broker_error"] == 1
    to.close()


def test_the_queue_is_bounded_in_bytes(known: Site, hung_broker: HungBroker) -> None:
    to = producer(known, bootstrap=hung_broker.address, queue_bytes=1 << 16, close_timeout=0.1)
    taken = sum(to.send(known.visit("x" * 1000)) for _ in range(200))
    assert 50 <= taken <= 65
    assert to.counts()["dropped:queue_full"] == 200 - taken
    to.close()


def murmur2(data: bytes) -> int:
    """As Kafka's Java client partitions keys (written down from its definition)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker whose topics have seven partitions, and its folder."""
    folder = tmp_path_factory.mktemp("seven")
    command = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder)]
    with child_process.start([*command, "--default-partitions", "7"]) as running:
        yield running.address, folder


def test_keys_go_where_javas_go(known: Site, seven: tuple[str, Path]) -> None:
    with producer(known, bootstrap=seven[0]) as to:
        for key in (b"a", b"ab", b"abc", b"ada", b"123456789", "größe".encode()):
            partition, _ = to.send_and_wait(known.visit(), 60, key=key)
            assert partition == murmur2(key) % 7, key


@pytest.mark.parametrize(("config", "codec"), [({}, 4), ({"compression.type": "gzip"}, 1)])
def test_batches_are_compressed_and_idempotent(
    known: Site, config: dict[str, Any], codec: int, seven: tuple[str, Path]
) -> None:
    with producer(known, bootstrap=seven[0], config=config) as to:
        for _ in range(200):
            to.send(known.visit("x" * 100))
    logs = seven[1].glob(f"**/{known.topic}-*/*.log")
    (path,) = (path for path in logs if path.stat().st_size > 0)  # one key, one partition
    header = read_header(path.read_bytes())
    assert header.codec == codec
    assert header.producer_id >= 0


def test_one_thread_polls_and_none_keeps_the_process(known: Site) -> None:
    before = set(threading.enumerate())
    with producer(known):
        ours = set(threading.enumerate()) - before
        assert sorted(t.name for t in ours) == ["headworks-audit", "headworks-producer"]
        assert all(t.daemon for t in ours)
    assert not {t for t in ours if t.is_alive()}


def test_a_hanging_registry_delays_no_sender(
    known: Site, hung_broker: HungBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    patiently = RegistryClient.lookup

    def lookup(client: RegistryClient, subject: str, schema: str) -> Any:
        assert client is to._ids._refresh_client or not subject.startswith(known.topic)
        asked.append(subject)
        return patiently(client, subject, schema)

    asked: list[str] = []
    nowhere = f"http://{hung_broker.address}"
    memory = known.state / "schema-ids.json"
    memory.write_text(memory.read_text().replace(known.registry, nowhere))
    to = producer(
        known, registry=nowhere, audit_every=0.05, close_timeout=3.0, registry_timeout=0.5
    )
    monkeypatch.setattr(RegistryClient, "lookup", lookup)
    assert to.send(known.visit())  # asks once, briefly: the id is known
    for _ in range(50):  # deliveries are reported while the audit waits for the registry
        assert to.send_and_wait(known.visit(), 60)
    assert asked.count(f"{known.topic}-value") == 1
    publisher, began = to._start()._publishing_thread, time.monotonic()
    assert to.close() == 0
    assert publisher.is_alive() or time.monotonic() - began < 15  # it does not wait for that
    assert len(log(known)) == 51


def test_a_registry_that_hangs_costs_an_unknown_event_one_short_wait(
    site: Site, hung_broker: HungBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted how often the registry is asked: a machine may stand still at any time."""
    lookup, asked = RegistryClient.lookup, list[str]()

    def noted(client: RegistryClient, subject: str, schema: str) -> Any:
        asked.append(subject)
        return lookup(client, subject, schema)

    monkeypatch.setattr(RegistryClient, "lookup", noted)
    monkeypatch.setattr(_schema_ids, "_SILENT_SECONDS", PATIENCE)
    to = producer(site, registry=f"http://{hung_broker.address}", events=(), registry_timeout=0.2)
    began = time.monotonic()
    for _ in range(5):
        with pytest.raises(UnreachableError):
            to.send(site.visit())
    assert time.monotonic() - began >= 0.2
    assert to.close() == 0
    assert asked == [f"{site.topic}-value"], "once, and never for the audit's schema"


def test_a_clock_is_only_asked_for_events_without_a_time(tmp_path: Path, site: Site) -> None:
    text = {
        "type": "record",
        "name": "Plain",
        "namespace": "web",
        "headworks": {"topic": f"{site.topic}-plain"},
        "fields": [{"name": "n", "type": "int"}],
    }
    plain = build(tmp_path, {"plain.avsc": json.dumps(text)})["web"].Plain
    times = itertools.cycle([5_000_000.0, 1_000.0, 7_200.5, 4_102_444_800.0])
    with producer(site, auto_register=True, clock=lambda: next(times)) as to:
        for n in range(40):
            assert to.send(plain(n=n))
        assert to.send(site.visit())
    windows = read_ledger(site.bootstrap, site.registry).balances("hadoop", f"{site.topic}-plain")
    assert {row.window_start: (row.attempted, row.delivered) for row in windows} == {
        window_of(int(at * 1000)): (10, 10)
        for at in (5_000_000.0, 1_000.0, 7_200.5, 4_102_444_800.0)
    }
    (timed,) = read_ledger(site.bootstrap, site.registry).balances("hadoop", site.topic)
    assert (timed.window_start, timed.delivered) == (window_of(int(AT.timestamp() * 1000)), 1)


def test_a_generated_class_needs_no_avro_library(site: Site) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(site.state.parent)!r})
import {site.one.__name__}, producer_sdk
heavy = {{"fastavro", "pyspark", "numba", "pyarrow", "fastapi", "kio", "typer"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
