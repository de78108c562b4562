"""The producer against a real broker, a hung one and none; killed, forked, left without a close."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headworks._audit.balance import Balance, total
from headworks._audit.reader import read_ledger
from headworks._server.child_process import Service
from headworks.codec import EncodeError
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from producer_sdk import DeliveryError, Producer, WhenFull
from tests.pipeline.conftest import Topic
from tests.waiting import until

pytestmark = pytest.mark.e2e

Make = Callable[..., Producer]
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def click(topic: Topic, number: int = 0) -> Any:
    return topic.v1.Click(user=f"u{number}", at=NOON + timedelta(minutes=number), count=number)


def audited(broker: Service, registry: Service, topic: Topic) -> Balance:
    return total(read_ledger(broker.address, registry.url).balances("hadoop", topic.name))


@contextmanager
def hung_broker() -> Iterator[str]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_what_is_sent_is_delivered_and_audited(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    with producer() as running:
        assert all(running.send(click(topic, n)) for n in range(500))
    row = audited(broker, registry, topic)
    assert (row.attempted, row.delivered, row.failed, row.dropped) == (500, 500, 0, 0)


def test_send_and_wait_gives_the_place(producer: Make, topic: Topic) -> None:
    running = producer()
    first = running.send_and_wait(click(topic), 60)
    second = running.send_and_wait(click(topic), 60)
    assert first[0] == second[0], "one key, one partition"
    assert second[1] == first[1] + 1


def test_asend(producer: Make, topic: Topic) -> None:
    running = producer()
    assert asyncio.run(running.asend(click(topic)))
    assert running.flush(60) == 0


def test_a_wrong_event_raises_in_the_caller_and_is_not_counted(
    producer: Make, topic: Topic
) -> None:
    running = producer()
    with pytest.raises(EncodeError, match="count"):
        running.send(topic.v1.Click(user="u", at=NOON, count=2**31))
    with pytest.raises(TypeError, match="headworks gen"):
        running.send({"user": "u"})  # type: ignore[arg-type]
    assert running.counts()["attempted"] == 0


def test_an_unregistered_schema_is_refused_with_the_command_that_registers_it(
    producer: Make, topic: Topic, registry: Service
) -> None:
    RegistryClient(registry.url).set_compatibility(f"{topic.name}-value", "NONE")
    import urllib3

    urllib3.request("DELETE", f"{registry.url}/subjects/{topic.name}-value")
    with pytest.raises(UsageError, match="headworks schema register"):
        producer().send(click(topic))
    assert producer(auto_register=True).send(click(topic))


def test_a_known_schema_needs_no_registry(
    producer: Make, topic: Topic, broker: Service, tmp_path: Path
) -> None:
    producer(events=(topic.v1.Click,)).close()
    remembered = (tmp_path / "state" / "schema-ids.json").read_text()
    nowhere = "http://127.0.0.1:1"
    url = next(iter(remembered.split('"')[1].split(" ")))
    (tmp_path / "state" / "schema-ids.json").write_text(remembered.replace(url, nowhere))
    options: dict[str, Any] = {"application": "test", "state_dir": tmp_path / "state"}
    with Producer(broker.address, nowhere, **options) as running:
        assert running.send_and_wait(click(topic), 60)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        Producer(broker.address, nowhere, events=(topic.v2.Click,), **options)


@pytest.mark.parametrize("when_full", [WhenFull.DROP_NEW, WhenFull.BLOCK])
def test_a_hung_broker_costs_drops_never_the_callers_time(
    producer: Make, topic: Topic, when_full: WhenFull
) -> None:
    with hung_broker() as address:
        running = producer(
            address, when_full=when_full, block_ms=50, queue_messages=100, close_timeout=1.0
        )
        taken = [running.send(click(topic, n % 5)) for n in range(105)]
        counts = running.counts()
        assert (taken.count(True), taken.count(False)) == (100, 5)
        assert counts["attempted"] == 105
        assert counts["dropped:queue_full"] == 5
        assert running.flush(0.1) == 100
        with pytest.raises(DeliveryError, match="queue is full"):
            running.send_and_wait(click(topic), 1)
        assert running.close() == 100


def test_counts_of_a_killed_process_are_published_by_the_next(
    producer: Make, topic: Topic, broker: Service, registry: Service, tmp_path: Path
) -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(tmp_path)!r})
from {topic.v1.__name__} import Click
from datetime import UTC, datetime
from pathlib import Path
from producer_sdk import Producer
p = Producer({broker.address!r}, {registry.url!r}, application="doomed",
             state_dir=Path({str(tmp_path / "state")!r}), audit_every=3600, registry_timeout=60)
for n in range(300):
    p.send(Click(user=str(n), at=datetime(2026, 5, 1, tzinfo=UTC), count=n))
assert p.flush(60) == 0
print("flushed", flush=True)
time.sleep(300)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "flushed\n"
        child.send_signal(signal.SIGKILL)
    producer().close()
    row = audited(broker, registry, topic)
    assert (row.attempted, row.delivered + row.unresolved - row.in_flight) == (300, 300)
    assert not list((tmp_path / "state").glob("*.counts"))


def test_a_process_that_ends_without_close_still_delivers(
    topic: Topic, broker: Service, registry: Service, tmp_path: Path
) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from {topic.v1.__name__} import Click
from datetime import UTC, datetime
from pathlib import Path
from producer_sdk import Producer
p = Producer({broker.address!r}, {registry.url!r}, application="careless",
             state_dir=Path({str(tmp_path / "state")!r}), close_timeout=60, registry_timeout=60)
for n in range(50):
    p.send(Click(user=str(n), at=datetime(2026, 5, 1, tzinfo=UTC), count=n))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    row = audited(broker, registry, topic)
    assert (row.attempted, row.delivered) == (50, 50)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_sends_its_own(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    running = producer()
    assert running.send_and_wait(click(topic, 1), 60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            running.send_and_wait(click(topic, 2), 60)
            code = 0 if running.close() == 0 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert running.send_and_wait(click(topic, 3), 60)
    running.close()
    row = audited(broker, registry, topic)
    assert (row.attempted, row.delivered) == (3, 3)


def test_a_closed_producer_says_so(producer: Make, topic: Topic) -> None:
    running = producer()
    running.close()
    running.close()
    with pytest.raises(UsageError, match="closed"):
        running.send(click(topic))


def test_audit_counts_are_published_while_it_runs(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    running = producer(audit_every=0.2)
    running.send_and_wait(click(topic), 60)
    assert until(lambda: audited(broker, registry, topic).delivered == 1)
