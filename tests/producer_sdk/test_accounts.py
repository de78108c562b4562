"""Every message is accounted for, whatever happens to the producer, its broker, or the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from headworks._server.child_process import Service
from producer_sdk import WhenFull
from producer_sdk._hung_broker import HungBroker
from tests.producer_sdk.accounts import ENDS, Child, check, run
from tests.producer_sdk.events import Site, new_site

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_a_process(site: Site, end: str) -> None:
    child = Child(end)
    account = run(site, child)
    check(account, child)
    if end != "sigkill":
        assert account.balance.delivered == account.sent == (1500 if end == "fork" else 500)


def test_a_producer_to_which_nothing_refers_is_closed_at_the_exit(site: Site) -> None:
    child = Child("forgotten", config=(("linger.ms", 60_000),))
    account = run(site, child)
    check(account, child)
    assert account.balance.delivered == account.sent == 500
    assert list(site.state.glob("*.counts")) == []


@pytest.mark.parametrize(
    ("when_full", "end"), [*((policy, "close") for policy in WhenFull), (WhenFull.SPILL, "sigkill")]
)
def test_a_queue_that_is_full(
    site: Site, hung_broker: HungBroker, when_full: WhenFull, end: str
) -> None:
    # The counts go through the same queue: on a slow machine they would take a place in it.
    child = Child(end, 150, when_full, queue=100, close_timeout=0.3, audit_every=3600)
    account = run(site, child, bootstrap=hung_broker.address)
    check(account, child)
    if when_full is not WhenFull.SPILL:
        assert (account.taken, account.balance.delivered) == (100, 0)
        assert account.balance.unresolved == 0


def test_messages_that_time_out(site: Site, hung_broker: HungBroker) -> None:
    child = Child(count=50, config=(("message.timeout.ms", 300),), flush=60, close_timeout=1)
    account = run(site, child, bootstrap=hung_broker.address)
    check(account, child)
    assert account.balance.failed == account.taken == 50  # the broker may have them


def test_a_clock_that_goes_backwards(site: Site) -> None:
    child = Child(count=300, clock=tuple(-n % 7 - 1000 * (n % 5 == 0) for n in range(300)))
    account = run(site, child)
    check(account, child)
    assert account.balance.delivered == 300


@pytest.fixture
def lone_broker(tmp_path: Path) -> Iterator[Callable[[], Service]]:
    """A broker of this test's own, which can be stopped and started again at its address."""
    command = ["broker", "start", "--listen", f"127.0.0.1:{free_ports(1)[0]}", "--data-dir"]
    running: list[Service] = []

    def start() -> Service:
        running.append(child_process.start([*command, str(tmp_path / "broker")]))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.mark.parametrize("when_full", list(WhenFull))
def test_a_broker_that_goes_and_comes_back(
    lone_broker: Callable[[], Service], registry: Service, tmp_path: Path, when_full: WhenFull
) -> None:
    first = lone_broker()
    site = new_site(tmp_path, first.address, registry.url)

    def stop() -> None:
        first.stop()

    def stay_away() -> None:
        pass

    def come_back() -> None:
        lone_broker()

    child = Child(count=500, when_full=when_full, queue=200, pause=0.002)
    account = run(site, child, meanwhile=[stop, stay_away, come_back])
    check(account, child)
    assert account.sent == 1500
    # While it stayed away, more was sent than the queue has places.
    assert account.taken < account.sent or when_full is WhenFull.SPILL
