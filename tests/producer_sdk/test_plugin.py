"""The fixtures that users' own tests get, as those tests see them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from producer_sdk import Producer, WhenFull
from producer_sdk._generator import generate, write
from producer_sdk._hung_broker import HungBroker
from producer_sdk.pytest_plugin import Stack
from producer_sdk.testing import RecordingProducer
from tests.headworks.codec.generated_packages import environment
from tests.producer_sdk.events import Site, new_site

pytestmark = pytest.mark.e2e

SCHEMA = """{
  "type": "record", "name": "Ordered", "namespace": "shop",
  "headworks": {"topic": "orders", "key": ["customer"]},
  "fields": [{"name": "customer", "type": "string"}]
}"""
USERS_TESTS = """
import broker, registry          # the application's own modules of these names
from my_events.shop import Ordered
from consumer_sdk import Consumer
from producer_sdk import Producer

def test_orders_go_through(headworks_stack):
    headworks_stack.register(Ordered)
    with Producer(application="shop", registry_timeout=60) as producer:
        assert producer.send(Ordered(customer="ada"))
    with Consumer([Ordered], group="billing") as consumer:
        for message in consumer:
            assert message.event == Ordered(customer="ada")
            break

def test_nothing_but_memory(recording_producer):
    recording_producer.send(Ordered(customer="ada"))
    assert recording_producer.assert_sent(Ordered, 1)[0].customer == "ada"

def test_the_own_modules_are_the_own():
    assert broker.mine and registry.mine
"""


def test_a_users_own_tests_find_a_running_stack(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "ordered.avsc").write_text(SCHEMA)
    write(generate([tmp_path / "schemas"]), tmp_path / "my_events")
    for name in ("broker", "registry"):
        (tmp_path / f"{name}.py").write_text("mine = True\n")
    (tmp_path / "test_shop.py").write_text(USERS_TESTS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--rootdir", "."),
            *("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:anyio"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=environment(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_hung_broker_never_makes_a_caller_wait(
    site: Site, hung_broker: HungBroker, tmp_path: Path
) -> None:
    with Producer(site.bootstrap, site.registry, application="a", state_dir=site.state) as first:
        first.send(site.visit("known"))  # the schema's id is known now
    producer = Producer(
        hung_broker.address,
        site.registry,
        application="a",
        state_dir=site.state,
        when_full=WhenFull.DROP_NEW,
        queue_messages=1000,
        close_timeout=0.5,
        audit_every=3600,
    )
    began = time.monotonic()
    taken = [producer.send(site.visit(str(n))) for n in range(1500)]
    assert time.monotonic() - began < 30  # a wait for a broker that says nothing is longer
    assert taken == [True] * 1000 + [False] * 500
    counts = producer.counts()
    assert (counts["attempted"], counts["dropped:queue_full"]) == (1500, 500)
    assert producer.close() >= 1000


@pytest.fixture
def site(tmp_path: Path, headworks_stack: Stack) -> Site:
    return new_site(tmp_path, headworks_stack.bootstrap, headworks_stack.registry)


def test_the_recording_fixture(recording_producer: RecordingProducer) -> None:
    assert recording_producer.events == []
