"""One state folder for two clusters: each gets the counts and the messages that are its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer
from headworks._audit.reader import read_ledger
from headworks._audit_counting.counters import CounterFile, leftover_files
from headworks._audit_counting.layout import MAGIC_WITHOUT_CLUSTER
from headworks._audit_counting.outcomes import ATTEMPTED
from headworks._cli.stack.ports import free_ports
from headworks._kafka.cluster_identity import unpacked
from headworks._server import child_process
from headworks._server.child_process import Service
from producer_sdk import Producer, WhenFull
from producer_sdk._spill_file import HEADER_BYTES
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.e2e
FIRST, SECOND = range(10), range(10, 20)


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def lone_broker(tmp_path: Path, port: int) -> Iterator[Any]:
    """Starts a cluster of this test's own on `port`, and starts it again after its end."""
    command = ["broker", "start", "--listen", f"127.0.0.1:{port}", "--data-dir"]
    running: list[Service] = []

    def start() -> Service:
        running.append(child_process.start([*command, str(tmp_path / "broker")]))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def producer(site: Site, address: str, when_full: WhenFull, **options: Any) -> Producer:
    given = {"audit_every": 0.1, "registry_timeout": 60, "close_timeout": 60, **options}
    return Producer(
        *(address, site.registry),
        application="p",
        events=(site.one.Visit,),
        state_dir=site.state,
        when_full=when_full,
        **given,
    )


def names_its_cluster(folder: Path) -> bool:
    """Whether every spill in a folder names its cluster by an id."""
    heads = [path.read_bytes()[16:HEADER_BYTES] for path in folder.glob("*.spill")]
    found = [unpacked(head) for head in heads]
    return bool(found) and all(each is not None and each.id for each in found)


def attempts(address: str, site: Site) -> int:
    rows = read_ledger(address, site.registry).balances("producer", site.topic)
    return sum(row.attempted for row in rows)


@pytest.mark.parametrize("was_reached", [True, False], ids=["reached", "never-reached"])
def test_what_one_cluster_did_not_get_goes_to_no_other(
    was_reached: bool,
    lone_broker: Any,
    port: int,
    broker: Service,
    registry: Service,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = new_site(tmp_path, broker.address, registry.url)
    own = lone_broker() if was_reached else None
    to = producer(site, f"127.0.0.1:{port}", WhenFull.SPILL, close_timeout=0.1)
    if own is not None:
        until(lambda: names_its_cluster(site.state))
        own.stop()
    for number in FIRST:
        assert to.send(site.visit(str(number)))
    assert to.close() == len(FIRST)
    left = sorted(path.name for path in site.state.glob("*.[cs]*"))

    with (
        caplog.at_level(logging.WARNING),
        producer(site, broker.address, WhenFull.SPILL) as other,
    ):
        for number in SECOND:
            assert other.send(site.visit(str(number)))
        until(lambda: sum("They stay there" in each for each in caplog.messages) == 2)
    assert sorted(path.name for path in site.state.glob("*.[cs]*")) == left
    assert attempts(broker.address, site) == len(SECOND)

    lone_broker()
    # The name of its address differs, and its id is the same, or it names the address itself.
    with producer(site, f"localhost:{port}", WhenFull.SPILL):
        pass
    assert list(site.state.glob("*.counts")) == list(site.state.glob("*.spill")) == []
    for address, numbers in ((f"127.0.0.1:{port}", FIRST), (broker.address, SECOND)):
        events, name = [site.one.Visit], site.registry
        with Consumer(events, group="g", bootstrap=address, registry=name) as reading:
            found = [next(iter(reading)).event.user for _ in numbers]
            assert sorted(found, key=int) == [str(number) for number in numbers]
            assert reading.poll(0.5) is None


def test_counts_of_an_earlier_release_are_published_by_the_next_producer(
    broker: Service, registry: Service, tmp_path: Path
) -> None:
    site = new_site(tmp_path, broker.address, registry.url)
    old = CounterFile(site.state)
    old.count(site.topic, 0, 5, ATTEMPTED)
    old.words[0] = MAGIC_WITHOUT_CLUSTER
    old.close()
    (found,) = leftover_files(site.state)
    assert found.cluster is None
    found.close()
    with producer(site, broker.address, WhenFull.DROP_NEW):
        pass
    assert list(site.state.glob("*.counts")) == []
    assert attempts(broker.address, site) == 1
