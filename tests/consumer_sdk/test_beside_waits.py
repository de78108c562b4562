"""Handlers beside each other: what is slow holds up neither the others, nor the loop, nor stops."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from consumer_sdk import Message, OnPoison, Retry, _dispatch, _poison
from consumer_sdk.testing import ReplayingConsumer
from headworks._kafka.clients import KafkaProducer
from headworks._server.child_process import Service
from tests.consumer_sdk.test_beside import committed, either, send
from tests.consumer_sdk.test_handlers import FlakyError, app_of, run_until
from tests.producer_sdk.events import Site, new_site
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def test_no_poll_waits_for_a_batch_longer_than_for_a_stop(site: Site) -> None:
    class Noting(ReplayingConsumer[Any]):
        """Notes how long each poll may wait."""

        def poll(self, timeout: float) -> Message[Any] | None:
            patience.append(timeout)
            return super().poll(timeout)

    patience: list[float] = []
    app = app_of(site)
    app.on_batch(site.one.Visit, size=10, seconds=600)(lambda _: None)
    app.run(Noting([site.visit("ada"), site.visit("bob")]))
    assert len(patience) == 2
    assert max(patience) <= 0.5


def test_a_dead_letter_that_waits_does_not_hold_up_the_event_loop(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(KafkaProducer):
        """Waits until the loop has gone on."""

        def flush(self, timeout: float = -1) -> int:
            is_written.set()
            in_time.append(has_gone_on.wait(60))
            return super().flush(timeout)

    is_written, has_gone_on, in_time = threading.Event(), threading.Event(), list[bool]()
    monkeypatch.setattr(_poison, "KafkaProducer", Slow)
    app = app_of(site)

    @app.on(site.one.Visit, concurrency=4, then=OnPoison.DEAD_LETTER)
    async def handle(message: Message[Any]) -> None:
        if message.event.user == "bad":
            raise FlakyError("no luck")
        while not is_written.is_set():
            await asyncio.sleep(0.01)
        if message.event.seconds == 2:  # in the lane of the first one, which has ended
            has_gone_on.set()

    send(site, ("bad", 0), ("ada", 1), ("ada", 2), partition=0)
    run_until(app, lambda: bool(in_time))
    assert in_time == [True]


def test_a_poll_and_a_handler_write_dead_letters_one_after_the_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(KafkaProducer):
        """Gives a second one a moment to be made beside it."""

        def __init__(self, config: dict[str, Any]) -> None:
            made.append(config)
            is_second.set() if len(made) > 1 else is_second.wait(1)
            super().__init__(config)

    made, is_second = list[Any](), threading.Event()
    monkeypatch.setattr(_poison, "KafkaProducer", Counted)
    app = app_of(site, on_poison=OnPoison.DEAD_LETTER)

    @app.on(site.one.Visit, retry=Retry(1), then=OnPoison.DEAD_LETTER, concurrency=2)
    def handle(_message: Message[Any]) -> None:
        raise FlakyError("no luck")

    send(site, ("bad", 0), partition=0)
    plain = confluent_kafka.Producer({"bootstrap.servers": site.bootstrap})
    plain.produce(site.topic, b"not ours", partition=0)
    assert plain.flush(60) == 0
    run_until(app, lambda: bool(made))
    assert len(made) == 1


def raw_messages() -> int:
    """The messages of librdkafka that this process holds."""
    gc.collect()
    return sum(isinstance(each, confluent_kafka.Message) for each in gc.get_objects())


@pytest.mark.parametrize("is_async", [False, True])
def test_those_that_end_behind_a_slow_one_take_little_memory(
    site: Site, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dispatch, "_WINDOW_FOR_EACH_CALL", 150)
    send(site, *[(f"user{number}", number) for number in range(400)], partition=0)
    app, handled, may = app_of(site, max_poll_records=20), list[int](), threading.Event()

    def handle(message: Message[Any]) -> None:
        if message.event.seconds == 0:
            may.wait(60)
        handled.append(message.event.seconds)

    app.on(site.one.Visit, concurrency=2)(either(handle, is_async=is_async))
    before, seen = raw_messages(), list[int]()

    def release() -> None:
        try:
            until(lambda: len(handled) == 299)  # the slow one and they are 150 for each call
            time.sleep(0.3)
            seen.append(len(handled))
            until(lambda: raw_messages() - before < 100, PATIENCE / 2)  # the slow one waits as well
            seen.append(raw_messages() - before)
        finally:
            may.set()

    releasing = threading.Thread(target=release)
    releasing.start()
    run_until(app, lambda: len(handled) == 400)
    releasing.join()
    assert seen[0] == 299, "it waits for the slow one"
    assert seen[1] < 100, "what is finished is let go"
    assert committed(site, site.topic) == 400


def test_a_stop_ends_the_wait_for_a_slow_message(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dispatch, "_WINDOW_FOR_EACH_CALL", 5)
    send(site, *[(f"user{number}", number) for number in range(30)], partition=0)
    app, handled = app_of(site), list[int]()
    has_begun, may = threading.Event(), threading.Event()

    @app.on(site.one.Visit, concurrency=2)
    def handle(message: Message[Any]) -> None:
        if message.event.seconds == 0:
            has_begun.set()
            may.wait(60)
        has_begun.wait(60)  # a stop drops a message that a thread has taken, and not begun
        handled.append(message.event.seconds)
        if len(handled) == 9:
            app.stop()
            may.set()

    app.run()
    assert sorted(handled) == list(range(10))
    assert committed(site, site.topic) == 10


def test_plain_handlers_beside_a_loop_have_a_thread_for_each_call(site: Site) -> None:
    app, together = app_of(site), threading.Barrier(40)

    @app.on(site.two.Visit)
    async def other(_message: Message[Any]) -> None: ...

    @app.on(site.one.Visit, concurrency=40)
    def handle(_message: Message[Any]) -> None:
        together.wait(60)

    consumer = ReplayingConsumer[Any]([site.visit(f"user{number}") for number in range(40)])
    app.run(consumer)
    assert len(consumer.processed) == 40
