"""An event loop waits for no registry and for no broker: threads do, whatever a message needs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from consumer_sdk import Consumer, Message, OnPoison, _handlers
from consumer_sdk._audit_tier import AuditTier
from consumer_sdk._poison import DeadLetterWriter
from consumer_sdk._retrying_consumer import RetryingConsumer
from consumer_sdk.testing import ReplayingConsumer
from headworks._audit_counting.schema_use import UNREGISTERED
from headworks._server.child_process import Service
from headworks.errors import UnreachableError
from headworks.registry_client import RegistryClient
from headworks.registry_client._schema_ids import EventSchemaIds
from producer_sdk import Producer
from tests.consumer_sdk.test_handlers import app_of
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[threading.Thread]]:
    """The threads that wait for the registry, and for dead letters to be written."""
    found: dict[str, list[threading.Thread]] = {}

    def noted(cls: type, name: str) -> None:
        method = getattr(cls, name)

        def note(*given: Any, **named: Any) -> Any:
            found.setdefault(name, []).append(threading.current_thread())
            return method(*given, **named)

        monkeypatch.setattr(cls, name, note)

    noted(RegistryClient, "ask")
    noted(EventSchemaIds, "find")
    noted(DeadLetterWriter, "send")
    return found


@pytest.mark.parametrize("concurrency", [1, 4])
def test_what_a_message_needs_is_waited_for_in_a_thread(
    site: Site, waits: dict[str, list[threading.Thread]], concurrency: int
) -> None:
    with Producer(
        site.bootstrap, site.registry, application="test", state_dir=site.state
    ) as producer:
        producer.send(site.visit("ada"), partition=0)
        producer.flush(60)
        newer = site.two.Visit(user="bob", at=site.visit().at, seconds=7)
        producer.send(newer, partition=0)  # its schema is met behind what is fetched already
        producer.flush(60)
    plain = confluent_kafka.Producer({"bootstrap.servers": site.bootstrap})
    plain.produce(site.topic, b"not ours", partition=0)
    assert plain.flush(60) == 0
    waits.clear()
    app = app_of(
        site, audit=True, state_dir=site.state / "consumer", on_poison=OnPoison.DEAD_LETTER
    )
    loops = list[threading.Thread]()

    @app.on(site.two.Visit, concurrency=concurrency)
    async def handle(_message: Message[Any]) -> None:
        loops.append(threading.current_thread())

    async def work() -> None:
        async with app.lifespan():
            while app.totals["dead"] < 1 or app.totals["consumed"] < 2:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert waits.keys() == {"ask", "find", "send"}
    assert loops[0] not in {thread for threads in waits.values() for thread in threads}


def test_a_registry_that_is_away_is_asked_again_in_a_thread(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[threading.Thread]()

    def find(_ids: EventSchemaIds, cls: type) -> int:
        if cls is not site.one.Visit:
            raise UnreachableError("it is not about the audit's own schema")
        asked.append(threading.current_thread())
        if len(asked) == 1:
            raise UnreachableError("it hangs")
        return 7

    monkeypatch.setattr(EventSchemaIds, "find", find)
    properties = {"bootstrap.servers": site.bootstrap}
    tier = AuditTier(
        *(properties, site.registry, "g", "test", site.state), [site.one.Visit], every=60
    )
    try:
        assert tier._reader(site.topic) == UNREGISTERED
        assert tier._reader(site.topic) == UNREGISTERED, "it is not asked again at once"
        tier._lookup_due = 0.0
        assert until(lambda: tier._reader(site.topic) == 7)
    finally:
        tier.close()
    assert asked[0] is threading.current_thread()
    assert len(asked) == 2
    assert asked[1] is not threading.current_thread()


def test_iteration_in_a_loop_waits_in_threads(
    site: Site, waits: dict[str, list[threading.Thread]]
) -> None:
    with Producer(
        site.bootstrap, site.registry, application="test", state_dir=site.state
    ) as producer:
        for number in range(20):
            producer.send(site.visit("ada", seconds=number), partition=0)
        producer.flush(60)
    waits.clear()

    async def read() -> list[int]:
        found = list[int]()
        async with Consumer(
            [site.one.Visit],
            group=f"loop-{site.topic}",
            bootstrap=site.bootstrap,
            registry=site.registry,
        ) as consumer:
            async for message in consumer:
                found.append(message.event.seconds)
                if len(found) == 20:
                    break
        return found

    assert asyncio.run(read()) == list(range(20))
    assert threading.current_thread() not in waits["ask"]


def test_a_cancelled_commit_has_ended() -> None:
    began, may = threading.Event(), threading.Event()

    class Slow(ReplayingConsumer[Any]):
        def commit(self) -> None:
            began.set()
            may.wait(60)
            super().commit()

    async def cancel() -> None:
        consumer = Slow([])
        committing = asyncio.create_task(consumer.acommit())
        await asyncio.to_thread(began.wait, 60)
        committing.cancel()
        asyncio.get_running_loop().call_later(0.05, may.set)
        with pytest.raises(asyncio.CancelledError):
            await committing
        assert consumer.commits == 1  # and no thread commits later

    asyncio.run(cancel())


@pytest.mark.parametrize("by_the_end_of_the_loop", [False, True])
def test_a_lifespan_that_is_cancelled_while_it_opens_closes_what_it_opened(
    site: Site, monkeypatch: pytest.MonkeyPatch, by_the_end_of_the_loop: bool
) -> None:
    began, may = threading.Event(), threading.Event()
    opened: list[RetryingConsumer] = []

    class Slow(RetryingConsumer):
        def __init__(self, *given: Any) -> None:
            began.set()
            may.wait(60)
            super().__init__(*given)
            opened.append(self)

    monkeypatch.setattr(_handlers, "RetryingConsumer", Slow)
    app = app_of(site)
    app.on(site.one.Visit)(lambda _message: None)

    async def live() -> None:
        async with app.lifespan():
            raise AssertionError("it was cancelled before")

    async def cancel() -> None:
        living = asyncio.create_task(live())
        await asyncio.to_thread(began.wait, 60)
        asyncio.get_running_loop().call_later(0.05, may.set)
        if by_the_end_of_the_loop:
            return  # asyncio.run cancels every task
        living.cancel()
        with pytest.raises(asyncio.CancelledError):
            await living

    asyncio.run(cancel())
    assert [consumer._closed for consumer in opened] == [True]
