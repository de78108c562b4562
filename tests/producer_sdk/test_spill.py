"""The queue on disk: in order, bounded, and there after whatever ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumer_sdk import Consumer
from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from headworks._server.child_process import Service
from producer_sdk import Producer, WhenFull
from producer_sdk._hung_broker import HungBroker
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill import Spill, leftover_spills
from tests.producer_sdk.events import Site, new_site

pytestmark = pytest.mark.unit

MESSAGES = st.builds(
    OutgoingMessage,
    st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=20),
    st.binary(max_size=100),
    st.none() | st.binary(max_size=10),
    st.integers(-(2**40), 2**50),
    st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5), min_size=1, max_size=3),
    st.none(),  # the partition: one that names it is never spilled
)
STEPS = st.lists(
    st.tuples(st.just("put"), MESSAGES)
    | st.tuples(st.just("take"), st.integers(1, 5))
    | st.tuples(st.sampled_from(["taken", "die"]), st.none()),
    max_size=40,
)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(STEPS)
def test_a_file_is_a_queue_that_survives_its_process(tmp_path: Path, steps: list[Any]) -> None:
    folder = tmp_path / os.urandom(8).hex()
    spill = Spill(folder, limit=30_000)
    held: deque[OutgoingMessage] = deque()
    given = 0
    for step, what in steps:
        if step == "put":
            assert spill.append(what)
            held.append(what)
        elif step == "take" and not given:
            found = spill.read(what)
            assert found == list(held)[: len(found)]
            assert len(found) == min(what, len(held))
            given = len(found)
        elif step == "taken":
            spill.acknowledge()
            for _ in range(given):
                held.popleft()
            given = 0
        elif step == "die":
            die(spill)
            (spill,) = leftover_spills(folder)
            spill._limit = 30_000
            given = 0
        assert spill.empty == (not held)
    spill.close()
    assert bool(list(folder.iterdir())) == bool(held)


def die(spill: Spill) -> None:
    for segment in spill._files:
        segment.release()  # as the kernel does


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_record_that_was_being_written_is_not_there(tmp_path: Path) -> None:
    spill = Spill(tmp_path, limit=1 << 20)
    one = OutgoingMessage("t", b"one", None, 1, None)
    assert spill.append(one)
    (path,) = tmp_path.iterdir()
    whole = size(tmp_path)
    assert spill.append(OutgoingMessage("t", b"two", b"k", 2, {"h": b"v"}))
    cut = size(tmp_path) - 1
    die(spill)
    for length in range(whole, cut):
        os.truncate(path, length)
        (again,) = leftover_spills(tmp_path)
        assert again.read(10) == [one]
        die(again)
        with path.open("r+b") as file:
            file.truncate(cut)


def test_it_never_grows_beyond_its_limit(tmp_path: Path) -> None:
    spill = Spill(tmp_path, limit=1000)
    taken = sum(spill.append(OutgoingMessage("t", bytes(100), None, 1, None)) for _ in range(100))
    assert 0 < taken < 10
    assert size(tmp_path) <= 1000
    spill.read(100)
    spill.acknowledge()
    assert spill.append(OutgoingMessage("t", bytes(100), None, 1, None))
    spill.close()


def test_what_is_delivered_makes_room_while_more_waits(tmp_path: Path) -> None:
    spill = Spill(tmp_path, limit=100_000)
    put = taken = 0
    while put < 20_000:  # twenty times what fits
        while put - taken < 700:
            assert spill.append(OutgoingMessage("t", put.to_bytes(4) + bytes(60), None, 1, None))
            put += 1
        found = spill.read(100)
        assert [int.from_bytes((each.value or b"")[:4]) for each in found] == [
            *range(taken, taken + 100)
        ]
        spill.acknowledge()
        taken += 100
        assert not spill.empty
        assert spill.messages == put - taken
        assert size(tmp_path) <= 100_000
    spill.close()
    (again,) = leftover_spills(tmp_path)
    rest = again.read(10_000)
    assert [int.from_bytes((each.value or b"")[:4]) for each in rest] == [*range(taken, put)]
    again.acknowledge()
    again.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def lone_broker(tmp_path: Path) -> Iterator[Any]:
    """A broker of this test's own, which can be stopped and started again at its address."""
    command = ["broker", "start", "--listen", f"127.0.0.1:{free_ports(1)[0]}", "--data-dir"]
    running: list[Service] = []

    def start() -> Service:
        running.append(child_process.start([*command, str(tmp_path / "broker")]))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def read(site: Site, address: str, count: int) -> list[str]:
    found: list[str] = []
    with Consumer(
        [site.one.Visit], group="readers", bootstrap=address, registry=site.registry
    ) as consumer:
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            found += [message.event.user] if message is not None else []
        assert consumer.poll(1) is None
    return found


def spilling(site: Site, address: str, **more: Any) -> Producer:
    options = {"when_full": WhenFull.SPILL, "queue_messages": 50, "close_timeout": 60.0, **more}
    options.setdefault("audit_every", 3600)  # its counts would take places in a queue that small
    return Producer(address, site.registry, application="s", state_dir=site.state, **options)


def send(producer: Producer, site: Site, numbers: range) -> None:
    for n in numbers:
        # one key, one partition: the order must hold
        assert producer.send(site.visit(str(n)), key=b"same", headers={"n": str(n)})


@pytest.mark.e2e
def test_a_broker_that_is_gone_and_comes_back_gets_everything_in_order(
    lone_broker: Any, registry: Service, tmp_path: Path
) -> None:
    broker = lone_broker()
    site = new_site(tmp_path, broker.address, registry.url)
    with spilling(site, broker.address) as producer:
        send(producer, site, range(20))
        assert producer.flush(60) == 0
        broker.stop()
        send(producer, site, range(20, 3000))
        assert producer.counts()["dropped:queue_full"] == 0
        assert any(path.stat().st_size > 10_000 for path in site.state.glob("*.spill"))
        again = lone_broker()
        send(producer, site, range(3000, 3100))
        assert producer.flush(60) == 0
    assert read(site, again.address, 3100) == [str(n) for n in range(3100)]
    assert list(site.state.glob("*.spill")) == []
    assert list(site.state.glob("*.counts")) == []


@pytest.mark.e2e
def test_what_a_closed_producer_could_not_send_the_next_one_sends(
    hung_broker: HungBroker, broker: Service, registry: Service, tmp_path: Path
) -> None:
    site = new_site(tmp_path, broker.address, registry.url)
    producer = spilling(site, hung_broker.address, close_timeout=0.5)
    send(producer, site, range(200))
    assert producer.close() == 200
    with spilling(site, f"{broker.address},{hung_broker.address}"):
        pass
    assert sorted(read(site, broker.address, 200), key=int) == [str(n) for n in range(200)]
    assert list(site.state.glob("*.spill")) == []


@pytest.mark.e2e
def test_a_killed_producers_spill_is_sent_by_the_next(
    hung_broker: HungBroker, broker: Service, registry: Service, tmp_path: Path
) -> None:
    site = new_site(tmp_path, broker.address, registry.url)
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(tmp_path)!r})
from {site.one.__name__} import Visit
from producer_sdk import Producer, WhenFull
import datetime as dt
from pathlib import Path
producer = Producer({hung_broker.address!r}, {site.registry!r}, application="s",
    state_dir=Path({str(site.state)!r}), when_full=WhenFull.SPILL, queue_messages=10,
    audit_every=3600, registry_timeout=60)
for n in range(300):
    event = Visit(user=str(n), at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC), seconds=1)
    assert producer.send(event, key=b"same")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    with spilling(site, f"{broker.address},{hung_broker.address}"):
        pass
    # What was in memory (the queue of 10) died with the process; what was on disk did not.
    assert read(site, broker.address, 290) == [str(n) for n in range(10, 300)]


@pytest.mark.e2e
def test_a_full_spill_drops_and_counts(
    hung_broker: HungBroker, broker: Service, registry: Service, tmp_path: Path
) -> None:
    site = new_site(tmp_path, broker.address, registry.url)
    producer = spilling(site, hung_broker.address, spill_bytes=5000, close_timeout=0.2)
    taken = [producer.send(site.visit("u")) for _ in range(200)]
    assert taken[:50] == [True] * 50
    assert taken[-1] is False
    counts = producer.counts()
    assert counts["attempted"] == 200
    assert counts["dropped:queue_full"] == taken.count(False)
    producer.close()
