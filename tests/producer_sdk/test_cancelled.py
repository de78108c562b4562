"""A cancelled task of a producer leaves no thread behind, and nothing that is sent later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headworks._server.child_process import Service
from producer_sdk import DeliveryError, Producer, WhenFull
from producer_sdk._hung_broker import HungBroker
from tests.producer_sdk.events import Site, new_site

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def to_nobody(site: Site, hung_broker: HungBroker, **more: Any) -> Producer:
    options = {"application": "test", "state_dir": site.state, "close_timeout": 0.1, **more}
    return Producer(
        hung_broker.address, site.registry, events=(site.one.Visit,), audit_every=3600, **options
    )


async def _cancelled(call: Awaitable[object], begun: Callable[[], bool]) -> None:
    task = asyncio.ensure_future(call)
    while not begun():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_flush_leaves_no_thread(
    site: Site, hung_broker: HungBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    working: list[threading.Thread] = []
    flush = Producer.flush

    def noted(self: Producer, timeout: float) -> int:
        working.append(threading.current_thread())
        try:
            return flush(self, timeout)
        finally:
            working.remove(threading.current_thread())

    monkeypatch.setattr(Producer, "flush", noted)
    producer = to_nobody(site, hung_broker)

    async def run() -> None:
        producer.send(site.visit())
        await _cancelled(producer.aflush(3600), lambda: bool(working))
        assert not working
        assert await producer.aflush(0) == 1

    asyncio.run(run())
    producer.close()


def test_an_acknowledgement_is_awaited_without_a_thread(
    site: Site, hung_broker: HungBroker
) -> None:
    producer = to_nobody(site, hung_broker)

    async def run() -> None:
        threads = set(threading.enumerate())
        before = producer.counts().get("attempted", 0)
        await _cancelled(
            producer.asend_and_wait(site.visit(), 3600),
            lambda: producer.counts().get("attempted", 0) > before,
        )
        with pytest.raises(DeliveryError, match="did not acknowledge"):
            await producer.asend_and_wait(site.visit(), 0.01)
        new = {one.name for one in threading.enumerate() if one not in threads}
        assert not [name for name in new if name.startswith("asyncio_")]

    asyncio.run(run())
    producer.close()  # whose delivery reports find a closed loop


def test_a_cancelled_send_sends_nothing(site: Site, hung_broker: HungBroker) -> None:
    producer = to_nobody(
        site, hung_broker, queue_messages=1, when_full=WhenFull.BLOCK, block_ms=3_600_000
    )

    async def run() -> None:
        first = asyncio.ensure_future(producer.asend(site.visit()))
        while not len(producer._start().client):  # a heartbeat of the audit may fill it, too
            await asyncio.sleep(0.001)
        turns = iter(range(20))
        await _cancelled(producer.asend(site.visit()), lambda: next(turns) == 19)
        first.cancel()
        await asyncio.wait([first])
        sent = int(not first.cancelled())
        counts = producer.counts()
        assert (counts["attempted"], counts["dropped:queue_full"]) == (2, 2 - sent)
        assert len(producer._start().client) == 1  # the first event, or the heartbeat

    asyncio.run(run())
    producer.close()


def test_an_event_is_sent_and_awaited(site: Site) -> None:
    async def run() -> list[tuple[int, int]]:
        async with Producer(
            site.bootstrap,
            site.registry,
            application="test",
            events=(site.one.Visit,),
            state_dir=site.state,
        ) as producer:
            sent = (producer.asend_and_wait(site.visit(), 60, partition=0) for _ in range(3))
            return list(await asyncio.gather(*sent))

    assert sorted(asyncio.run(run())) == [(0, 0), (0, 1), (0, 2)]
