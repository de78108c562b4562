"""Handlers that run beside each other by key or take batches: in order, counted, none skipped."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from consumer_sdk import Consumers, Message, OnPoison, Retry
from consumer_sdk.testing import ReplayingConsumer
from headworks._server.child_process import Service
from headworks.errors import UsageError
from producer_sdk import Producer
from tests.consumer_sdk.test_handlers import FlakyError, app_of, await_counts, replay, run_until
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def send(site: Site, *events: tuple[str, int], partition: int | None = None) -> None:
    """Send visits of these users; their seconds tell them apart."""
    with Producer(
        site.bootstrap, site.registry, application="test", state_dir=site.state
    ) as producer:
        for user, seconds in events:
            producer.send(site.visit(user, seconds=seconds), partition=partition)
        assert producer.flush(60) == 0


def committed(site: Site, topic: str) -> int:
    """The messages before the committed offsets of the group."""
    place = confluent_kafka.TopicPartition
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": site.bootstrap, "group.id": f"g-{site.topic}"}
    )
    partitions = client.list_topics(topic, timeout=60).topics[topic].partitions
    found = client.committed([place(topic, partition) for partition in partitions], timeout=60)
    client.close()
    return sum(max(0, each.offset) for each in found)


def either(handle: Callable[[Any], None], *, is_async: bool) -> Callable[[Any], Any]:
    """A plain handler, or a coroutine function that calls it in a thread."""

    async def handle_async(given: Any) -> None:
        await asyncio.to_thread(handle, given)

    return handle_async if is_async else handle


class Calls:
    """Notes what handlers do at the same time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen: dict[str, list[int]] = {}
        self.running: Counter[str] = Counter()
        self.most = 0
        self.overlapped: list[str] = []

    def __call__(self, message: Message[Any]) -> None:
        user = message.event.user
        with self.lock:
            self.running[user] += 1
            self.most = max(self.most, self.running.total())
            if self.running[user] > 1:
                self.overlapped.append(user)
        time.sleep(0.002 * (message.event.seconds % 3))
        with self.lock:
            self.seen.setdefault(user, []).append(message.event.seconds)
            self.running[user] -= 1


@pytest.mark.parametrize("is_async", [False, True])
def test_keys_are_handled_beside_each_other_and_each_in_its_order(
    site: Site, is_async: bool
) -> None:
    users = [f"user{number}" for number in range(7)]
    send(site, *[(users[number % 7], number) for number in range(210)])
    app, calls = app_of(site), Calls()
    app.on(site.one.Visit, concurrency=4)(either(calls, is_async=is_async))
    run_until(app, lambda: sum(map(len, calls.seen.values())) == 210)
    assert calls.seen == {user: list(range(at, 210, 7)) for at, user in enumerate(users)}
    assert calls.overlapped == []
    assert 1 < calls.most <= 4
    assert committed(site, site.topic) == 210


@pytest.mark.parametrize("is_async", [False, True])
def test_nothing_is_committed_past_a_message_that_is_not_finished(
    site: Site, is_async: bool
) -> None:
    send(site, *[(f"user{number}", number) for number in range(13)], partition=0)
    app, handled = app_of(site, commit_every=0.1), list[int]()
    may = threading.Event()

    def handle(message: Message[Any]) -> None:
        if message.event.seconds == 0:
            may.wait(60)
        handled.append(message.event.seconds)

    app.on(site.one.Visit, concurrency=4)(either(handle, is_async=is_async))

    def release() -> None:
        until(lambda: len(handled) == 12)
        time.sleep(0.5)  # several commits
        seen.append(committed(site, site.topic))
        may.set()

    seen: list[int] = []
    releasing = threading.Thread(target=release)
    releasing.start()
    run_until(app, lambda: len(handled) == 13)
    releasing.join()
    assert seen == [0]
    assert committed(site, site.topic) == 13


@pytest.mark.parametrize("is_async", [False, True])
def test_every_outcome_is_counted(site: Site, is_async: bool) -> None:
    send(site, *[(f"user{number}", number) for number in range(40)])
    app, seen = app_of(site, audit=True, state_dir=site.state), list[int]()

    def handle(message: Message[Any]) -> None:
        number = message.event.seconds
        seen.append(number)
        if number % 4 == 1 or (number % 4 == 2 and seen.count(number) < 2):
            raise FlakyError("no luck") if number % 4 == 2 else ValueError("wrong")

    policies = {FlakyError: Retry(1, later=(1,)), ValueError: Retry(2, pause=0.01)}
    on = app.on(site.one.Visit, retry=policies, then=OnPoison.DEAD_LETTER, concurrency=8)
    on(either(handle, is_async=is_async))
    run_until(app, lambda: len(seen) == 60)
    group = f"g-{site.topic}"
    wanted = {
        ("producer", site.topic): {"attempted": 40, "delivered": 40},
        ("consumer", site.topic): {"consumed": 20, "retried": 10, "dead": 10},
        ("producer", f"{site.topic}.retry-1s.{group}"): {"attempted": 10, "delivered": 10},
        ("consumer", f"{site.topic}.retry-1s.{group}"): {"consumed": 10},
    }
    await_counts(site, wanted)
    assert committed(site, site.topic) == 40


@pytest.mark.parametrize("is_async", [False, True])
def test_batches_have_a_size_and_a_time(site: Site, is_async: bool) -> None:
    send(site, *[("ada", number) for number in range(25)])
    app, batches = app_of(site), list[list[int]]()

    def handle(messages: list[Message[Any]]) -> None:
        batches.append([message.event.seconds for message in messages])

    app.on_batch(site.one.Visit, size=10, seconds=2.0)(either(handle, is_async=is_async))
    run_until(app, lambda: sum(map(len, batches)) == 25)
    assert [number for batch in batches for number in batch] == list(range(25))
    assert max(map(len, batches)) == 10
    assert committed(site, site.topic) == 25


@pytest.mark.parametrize("is_async", [False, True])
def test_a_bad_message_does_not_take_its_batch_along(site: Site, is_async: bool) -> None:
    app, calls = app_of(site), list[list[str]]()

    def handle(messages: list[Message[Any]]) -> None:
        users = [message.event.user for message in messages]
        calls.append(users)
        if "bad" in users:
            raise FlakyError("no luck")

    retry = Retry(attempts=2, pause=0.01)
    on = app.on_batch(site.one.Visit, size=3, retry=retry, then=OnPoison.DEAD_LETTER)
    on(either(handle, is_async=is_async))
    consumer = replay(site, "ada", "bad", "bob", "cy")
    app.run(consumer)
    whole = ["ada", "bad", "bob"]
    assert calls == [whole, whole, ["ada"], ["bad"], ["bob"], ["cy"]]
    assert [m.event.user for m in consumer.processed] == ["ada", "bob", "cy"]
    assert [why for _, why in consumer.rejected] == ["FlakyError: no luck (after 3 attempts)"]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_ends_the_run_and_leaves_what_is_behind_it(site: Site, is_async: bool) -> None:
    app = app_of(site)

    def handle(message: Message[Any]) -> None:
        if message.event.user == "bad":
            raise FlakyError("no luck")

    app.on(site.one.Visit, concurrency=2)(either(handle, is_async=is_async))
    consumer = replay(site, "ada", "bad", *["bob"] * 100)
    with pytest.raises(FlakyError):
        app.run(consumer)
    assert "bad" not in [m.event.user for m in consumer.processed]


def test_one_handler_runs_alone_beside_another_with_concurrency(site: Site) -> None:
    app, seen = app_of(site), list[str]()

    @app.on(site.one.Visit)
    def alone(message: Message[Any]) -> None:
        time.sleep(0.002 if message.event.user == "slow" else 0)
        seen.append(message.event.user)

    app.on_batch(site.two.Visit, size=2)(lambda messages: seen.append(f"batch of {len(messages)}"))
    two = [site.two.Visit(user="x", at=site.visit().at, seconds=1) for _ in range(3)]
    app.run(ReplayingConsumer[Any]([*map(site.visit, ["slow", "b", "slow", "c"]), *two]))
    assert [each for each in seen if "batch" not in each] == ["slow", "b", "slow", "c"]
    assert [each for each in seen if "batch" in each] == ["batch of 2", "batch of 1"]


def test_wrong_limits_are_refused(site: Site) -> None:
    app = Consumers(group="g", bootstrap=site.bootstrap, registry=site.registry)
    with pytest.raises(UsageError, match="concurrency is 0"):
        app.on(site.one.Visit, concurrency=0)(print)
    with pytest.raises(UsageError, match="a batch has up to 0 messages"):
        app.on_batch(site.one.Visit, size=0)(print)
