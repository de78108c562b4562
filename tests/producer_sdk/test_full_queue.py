"""A task that waits for room in the queue: its event is counted once, and sent or dropped once.

The queue is full by bytes: the first event lingers in it, and there is no room for a second one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from headworks._server.child_process import Service
from producer_sdk import DeliveryError, Interceptor, Producer, WhenFull
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.e2e

_HALF = "x" * 40_000  # of the 65,536 bytes of the queue
_LONG_MS = 3_600_000
METHODS = pytest.mark.parametrize("method", ["asend", "asend_and_wait"])


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


class Told(Interceptor):
    def __init__(self) -> None:
        self.taken = list[bool]()

    def after_enqueue(self, _event: object, *, taken: bool) -> None:
        self.taken.append(taken)


def full_producer(site: Site, *hooks: Interceptor, **more: Any) -> Producer:
    """A producer whose queue has no room for a second event until it is flushed."""
    options = {"when_full": WhenFull.BLOCK, "block_ms": _LONG_MS, "close_timeout": 60.0, **more}
    producer = Producer(
        *(site.bootstrap, site.registry),
        application="test",
        events=(site.one.Visit,),
        state_dir=site.state,
        audit_every=3600,
        queue_bytes=1 << 16,
        interceptors=hooks,
        config={"linger.ms": 200_000},
        **options,
    )
    assert producer.send(site.visit(_HALF))
    return producer


def sending(producer: Producer, site: Site, method: str) -> Coroutine[Any, Any, object]:
    more = (3600,) if method == "asend_and_wait" else ()
    call: Coroutine[Any, Any, object] = getattr(producer, method)(site.visit(_HALF), *more)
    return call


async def _turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0.001)


def outcome(producer: Producer) -> tuple[int, int, int, int]:
    totals = producer.totals
    return totals.attempted, totals.delivered, totals.dropped["queue_full"], totals.queued


@pytest.mark.parametrize("hooked", [False, True])
@METHODS
def test_it_is_sent_once_there_is_room(site: Site, method: str, hooked: bool) -> None:
    told = Told()
    producer = full_producer(site, *([told] if hooked else []))

    async def run() -> object:
        waiting = asyncio.ensure_future(sending(producer, site, method))
        await _turns()
        assert not waiting.done()
        assert outcome(producer) == (2, 0, 0, 2)
        while not waiting.done():
            await producer.aflush(60)
            await asyncio.sleep(0.001)
        return await waiting

    assert asyncio.run(run())
    assert producer.close() == 0
    assert outcome(producer) == (2, 2, 0, 0)
    assert told.taken == [True, True] * hooked


@METHODS
def test_a_cancelled_task_sends_nothing_later(site: Site, method: str) -> None:
    told = Told()
    producer = full_producer(site, told)

    async def run() -> None:
        waiting = asyncio.ensure_future(sending(producer, site, method))
        await _turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
    assert outcome(producer) == (2, 0, 1, 1)
    assert producer.close() == 0
    assert outcome(producer) == (2, 1, 1, 0)
    assert told.taken == [True, False]


@pytest.mark.parametrize(
    "policy", [{"block_ms": 20}, {"block_ms": 0}, {"when_full": WhenFull.DROP_NEW}]
)
def test_it_is_dropped_at_its_deadline(site: Site, policy: dict[str, Any]) -> None:
    told = Told()
    producer = full_producer(site, told, **policy)

    async def run() -> None:
        assert not await producer.asend(site.visit(_HALF))
        with pytest.raises(DeliveryError, match="the queue is full"):
            await producer.asend_and_wait(site.visit(_HALF), 3600)

    asyncio.run(run())
    assert outcome(producer) == (3, 0, 2, 1)
    assert producer.close() == 0
    assert outcome(producer) == (3, 1, 2, 0)
    assert told.taken == [True, False, False]


def test_a_spill_takes_it_at_once(site: Site) -> None:
    producer = full_producer(site, when_full=WhenFull.SPILL, close_timeout=0.1)
    assert asyncio.run(producer.asend(site.visit(_HALF)))
    assert outcome(producer) == (2, 0, 0, 2)
    producer.close()
    assert producer.totals.dropped["queue_full"] == 0


def test_a_producer_that_closes_drops_it(site: Site) -> None:
    told = Told()
    producer = full_producer(site, told)

    async def run() -> None:
        waiting = asyncio.ensure_future(producer.asend(site.visit(_HALF)))
        await _turns()
        await producer.aclose()
        await waiting

    asyncio.run(run())
    assert told.taken[0]
    assert len(told.taken) == 2
    totals = producer.totals
    assert (totals.attempted, totals.delivered) == (2, sum(told.taken))


def test_a_send_that_waits_while_the_producer_closes_is_sent_or_dropped(site: Site) -> None:
    producer, taken = full_producer(site), list[bool]()
    waiting = threading.Thread(target=lambda: taken.append(producer.send(site.visit(_HALF))))
    waiting.start()
    until(lambda: producer.totals.attempted == 2)
    assert producer.close() <= 1
    waiting.join()
    totals = producer.totals
    assert totals.delivered + totals.dropped["queue_full"] == 2
    assert taken == [totals.delivered == 2]
