"""Handlers: dispatched by class, retried, stopped without a loss, in threads and in event loops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from consumer_sdk import Consumer, Consumers, Message, OnPoison, Partition, Retry
from consumer_sdk.testing import ReplayingConsumer
from headworks._audit_counting import AUDIT_TOPIC
from headworks._server.child_process import Service
from headworks.errors import UsageError
from producer_sdk import Producer
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.e2e


class FlakyError(Exception):
    """An error that goes away."""


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def replay(site: Site, *users: str) -> ReplayingConsumer[Any]:
    return ReplayingConsumer([site.visit(user) for user in users])


def app_of(site: Site, **options: Any) -> Consumers:
    return Consumers(
        group=f"g-{site.topic}", bootstrap=site.bootstrap, registry=site.registry, **options
    )


def send(site: Site, *users: str) -> list[int]:
    """Send visits of these users, one after the other; return their partitions."""
    with Producer(
        site.bootstrap, site.registry, application="test", state_dir=site.state
    ) as producer:
        return [producer.send_and_wait(site.visit(user), 60)[0] for user in users]


def failing(
    times: int, seen: list[str], error: type[Exception] = FlakyError
) -> Callable[[Any], None]:
    def handle(message: Message[Any]) -> None:
        seen.append(message.event.user)
        if message.event.user == "bad" and seen.count("bad") <= times:
            raise error("no luck")

    return handle


@pytest.mark.parametrize("is_async", [False, True])
def test_each_event_goes_to_its_handler(site: Site, is_async: bool) -> None:
    app, seen = app_of(site), []

    @app.on(site.one.Visit)
    def plain(message: Message[Any]) -> None:
        seen.append((message.event.user, threading.current_thread()))

    if is_async:

        @app.on(site.two.Visit)
        async def other(message: Message[Any]) -> None:
            await asyncio.sleep(0)
            seen.append((message.event.user, threading.current_thread()))

    consumer = ReplayingConsumer[Any](
        [site.visit("ada"), *([site.two.Visit(user="bob", at=AT, seconds=1)] if is_async else [])]
    )
    app.run(consumer)
    assert [user for user, _ in seen] == ["ada", "bob"][: 1 + is_async]
    assert len(consumer.processed) == 1 + is_async
    assert (seen[-1][1] is threading.main_thread()) is True
    assert (seen[0][1] is threading.main_thread()) is not is_async, "it must not block the loop"


AT = datetime(2026, 5, 1, tzinfo=UTC)


def test_a_handler_that_recovers_is_retried_in_place(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen = app_of(site), list[str]()
    app.on(site.one.Visit, retry=Retry(attempts=3, pause=0.01))(failing(2, seen))
    consumer = replay(site, "bad", "good")
    app.run(consumer)
    assert seen == ["bad", "bad", "bad", "good"]
    assert [m.event.user for m in consumer.processed] == ["bad", "good"]
    assert "attempt 2 of 3 failed, the next is in 0.0 s: FlakyError('no luck')" in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_after_the_last_attempt_the_policy_decides(site: Site, is_async: bool) -> None:
    for then, attempts in ((OnPoison.DEAD_LETTER, 2), ("skip", 1), (OnPoison.STOP, 1)):
        app, seen = app_of(site), list[str]()
        plain = failing(9, seen)

        async def coroutine(message: Message[Any], plain: Any = plain) -> None:
            plain(message)

        on = app.on(site.one.Visit, retry=Retry(attempts, 0.01), then=then)  # type: ignore[arg-type]
        on(coroutine if is_async else plain)
        consumer = replay(site, "bad", "good")
        if then is OnPoison.STOP:
            with pytest.raises(FlakyError):
                app.run(consumer)
            assert consumer.processed == []
            continue
        app.run(consumer)
        assert seen == ["bad"] * attempts + ["good"]
        assert consumer.skipped == 1
        assert [m.event.user for m in consumer.processed] == ["good"]
        reasons = [why for _, why in consumer.rejected]
        assert reasons == (["FlakyError: no luck (after 2 attempts)"] if attempts == 2 else [])


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_handler_that_is_cancelled_from_inside_has_failed(site: Site, concurrency: int) -> None:
    """It ended the task of the handlers without a word."""
    app, seen = app_of(site), []

    @app.on(site.one.Visit, then=OnPoison.SKIP, concurrency=concurrency)
    async def handle(message: Message[Any]) -> None:
        seen.append(message.event.user)
        call = asyncio.create_task(asyncio.sleep(60))
        call.cancel()
        await call

    app.run(replay(site, "ada", "bob"))
    assert (sorted(seen), app.totals["skipped"]) == (["ada", "bob"], 2)


def test_some_exceptions_are_never_retried(site: Site) -> None:
    app, seen = app_of(site), list[str]()
    retry = Retry(attempts=5, pause=0.01, never=(LookupError,))
    app.on(site.one.Visit, retry=retry, then=OnPoison.DEAD_LETTER)(failing(9, seen, KeyError))
    consumer = replay(site, "bad")
    app.run(consumer)
    assert seen == ["bad"]
    assert consumer.rejected[0][1] == "KeyError: 'no luck' (after 1 attempt)"


def test_pauses_grow_to_a_limit() -> None:
    retry = Retry(attempts=6, pause=1, longest_pause=5)
    pauses = [retry.pause_after(attempt, FlakyError()) for attempt in range(1, 7)]
    assert pauses == [1, 2, 4, 5, 5, None]
    with pytest.raises(UsageError, match="0 attempts"):
        Retry(attempts=0)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stop_in_a_pause_leaves_the_message_to_the_next_member(
    site: Site, is_async: bool
) -> None:
    send(site, "good", "bad")
    app, seen = app_of(site), list[str]()
    plain = failing(9, seen)

    async def coroutine(message: Message[Any]) -> None:
        plain(message)

    app.on(site.one.Visit, retry=Retry(9, 60, 60))(coroutine if is_async else plain)

    def stop() -> None:
        until(lambda: "bad" in seen)
        app.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    app.run()
    stopper.join()
    assert seen.count("bad") == 1
    with Consumer([site.one.Visit], **connection(site)) as consumer:

        def is_bad() -> bool:
            message = consumer.poll(1)
            return message is not None and message.event.user == "bad"

        until(is_bad)


def connection(site: Site) -> dict[str, Any]:
    return {
        "group": f"g-{site.topic}",
        "bootstrap": site.bootstrap,
        "registry": site.registry,
    }


def test_a_signal_ends_run_after_the_message(site: Site) -> None:
    app, seen = app_of(site), list[str]()

    @app.on(site.one.Visit)
    def handle(message: Message[Any]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        seen.append(message.event.user)

    before = signal.getsignal(signal.SIGTERM)
    consumer = replay(site, "ada", "bob")
    app.run(consumer)
    assert seen == ["ada"]
    assert len(consumer.processed) == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_web_application_handles_events_in_its_lifespan(site: Site) -> None:
    app, seen = app_of(site), list[str]()

    @app.on(site.one.Visit, then=OnPoison.DEAD_LETTER)
    async def handle(message: Message[Any]) -> None:
        if message.event.user == "bad":
            raise FlakyError("no luck")
        seen.append(message.event.user)

    send(site, "ada", "bad", "bob")
    with TestClient(Starlette(lifespan=app.lifespan)):
        until(lambda: sorted(seen) == ["ada", "bob"] and app.totals["dead"] == 1)
    with Consumer(
        topics=[f"{site.topic}.dead-letter"],
        **{**connection(site), "group": "letters", "on_poison": OnPoison.STOP},
    ) as consumer:
        letter = until(lambda: consumer.poll(1))
    assert letter is not None
    assert letter.event["user"] == "bad"
    assert dict(letter.headers)["headworks.dead-letter.reason"] == (
        b"FlakyError: no luck (after 1 attempt)"
    )


def test_an_error_in_a_lifespan_is_logged_at_once_and_raised_at_its_end(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    send(site, "bad")
    app = app_of(site)
    app.on(site.one.Visit)(failing(9, []))

    async def live() -> None:
        async with app.lifespan():
            while "the handlers stopped" not in caplog.text:
                await asyncio.sleep(0.05)

    with pytest.raises(FlakyError):
        asyncio.run(asyncio.wait_for(live(), 60))


def test_wrong_registrations_are_refused(site: Site) -> None:
    app = app_of(site)
    with pytest.raises(UsageError, match="no handler"):
        app.run()
    with pytest.raises(TypeError, match="dict is not a class"):
        app.on(dict)
    with pytest.raises(UsageError, match="no event class") as refused:
        app.on(list[site.one.Visit])  # type: ignore[name-defined]
    assert refused.value.fix == "register with @app.on_batch(Visit)"
    with pytest.raises(UsageError, match="then is 'retry'"):
        app.on(site.one.Visit, then="retry")  # type: ignore[arg-type]
    for retry in (5, {"ValueError": Retry()}, {ValueError: 3}, {int: Retry()}):
        with pytest.raises(UsageError, match="a dict of them by exception class"):
            app.on(site.one.Visit, retry=retry)(json.dumps)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="group is ''"):
        Consumers(group="")
    app.on(site.one.Visit)(json.dumps)
    with pytest.raises(UsageError, match="Visit has a handler already"):
        app.on(site.one.Visit)(json.dumps)


class ShopClosedError(Exception):
    """An error that has a policy of its own."""


def await_counts(site: Site, wanted: dict[tuple[str, str], dict[str, int]]) -> None:
    """Wait until the audit has these counts of topics of this test, by tier and topic.

    They may come in several increments: a slow test lasts longer than the time between two.
    """
    counts: dict[tuple[str, str], dict[str, int]] = {}
    with Consumer[dict[str, Any]](
        topics=[AUDIT_TOPIC],
        group=f"audit-{site.topic}",
        bootstrap=site.bootstrap,
        registry=site.registry,
    ) as audit:
        while counts != wanted:
            message = audit.poll(60)
            assert message is not None, counts
            event = message.event
            if event["topic"].startswith(site.topic):
                counted = counts.setdefault((event["tier"].partition(":")[0], event["topic"]), {})
                for name, number in event["counts"].items():
                    counted[name] = counted.get(name, 0) + number
                    most = wanted.get((event["tier"].partition(":")[0], event["topic"]), {})
                    assert counted[name] <= most.get(name, 0), counts


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_is_put_off_and_the_others_do_not_wait(site: Site, is_async: bool) -> None:
    send(site, "bad", "worse", "ada")
    app = app_of(site, audit=True, state_dir=site.state)
    seen: list[tuple[str, int]] = []  # with the milliseconds, which is how messages have times

    def handle(message: Message[Any]) -> None:
        user = message.event.user
        seen.append((user, time.time_ns() // 1_000_000))
        attempts = [name for name, _ in seen].count(user)
        if (user == "bad" and attempts < 3) or user == "worse":
            raise FlakyError("no luck")

    async def ahandle(message: Message[Any]) -> None:
        handle(message)

    later = Retry(attempts=1, later=(5, 1))  # the first: longer than all are put off after
    app.on(site.one.Visit, retry=later, then=OnPoison.DEAD_LETTER)(ahandle if is_async else handle)
    run_until(app, lambda: len(seen) == 7)
    users = [user for user, _ in seen]
    assert sorted(users[:3]) == ["ada", "bad", "worse"], "nobody waits for what is put off"
    assert sorted(users) == ["ada", *["bad"] * 3, *["worse"] * 3]
    for user in ("bad", "worse"):
        first, second, third = (at for name, at in seen if name == user)
        assert second - first >= 5000
        assert third - second >= 1000
    group = f"g-{site.topic}"
    one, two = (f"{site.topic}.retry-{delay}s.{group}" for delay in (5, 1))
    wanted = {
        ("producer", site.topic): {"attempted": 3, "delivered": 3},
        ("consumer", site.topic): {"consumed": 1, "retried": 2},
        ("producer", one): {"attempted": 2, "delivered": 2},
        ("consumer", one): {"retried": 2},
        ("producer", two): {"attempted": 2, "delivered": 2},
        ("consumer", two): {"consumed": 1, "dead": 1},
    }
    await_counts(site, wanted)
    with Consumer(
        topics=[f"{site.topic}.dead-letter"],
        **{**connection(site), "group": "letters", "on_poison": OnPoison.STOP},
    ) as consumer:
        letter = until(lambda: consumer.poll(1))
    assert letter is not None
    headers = dict(letter.headers)
    assert headers["headworks.dead-letter.topic"] == site.topic.encode()
    assert headers["headworks.dead-letter.exception"] == b"FlakyError"
    reason = headers["headworks.dead-letter.reason"]
    assert reason == b"FlakyError: no luck (after 1 attempt, and put off 2 times)"
    assert not any(name.startswith("headworks.retry.") for name in headers)


def run_until(app: Consumers, is_done: Callable[[], bool]) -> None:
    """Run handlers until all was attempted, and the last message has ended."""

    def watch() -> None:
        until(is_done)
        time.sleep(0.2)
        app.stop()

    watching = threading.Thread(target=watch)
    watching.start()
    app.run()
    watching.join()


def test_each_exception_class_has_its_policy(site: Site) -> None:
    app, seen = app_of(site), list[str]()

    @app.on(
        site.one.Visit,
        retry={ShopClosedError: Retry(attempts=1, later=(60,)), FlakyError: Retry(3, pause=0)},
        then=OnPoison.SKIP,
    )
    def handle(message: Message[Any]) -> None:
        seen.append(message.event.user)
        errors = {"closed": ShopClosedError, "flaky": FlakyError, "wrong": ValueError}
        raise errors[message.event.user]

    assert set(app.totals.values()) == {0}
    consumer = replay(site, "closed", "flaky", "wrong")
    app.run(consumer)
    assert seen == ["closed", *["flaky"] * 3, "wrong"]
    assert [(m.event.user, delay) for m, delay in consumer.put_off] == [("closed", 60)]
    assert consumer.skipped == 2
    assert app.totals == {"consumed": 0, "skipped": 2, "dead": 0, "retried": 1}


def test_a_paused_partition_rests_and_the_others_do_not(site: Site) -> None:
    partitions = send(site, "ada", "bob", "cy", "di", "eve")
    with Consumer([site.one.Visit], **{**connection(site), "group": "pausing"}) as consumer:
        first = until(lambda: consumer.poll(1))
        assert first is not None
        paused = Partition(first.topic, first.partition)
        consumer.pause([paused])
        others: list[Message[Any]] = []
        while len(others) < 5 - partitions.count(paused.partition):
            message = until(lambda: consumer.poll(1))
            assert message is not None
            others.append(message)
        assert all(m.partition != paused.partition for m in others)
        assert consumer.poll(1) is None
        consumer.resume([paused])
        rest: list[Message[Any]] = []
        while len(rest) + len(others) < 4:
            message = until(lambda: consumer.poll(1))
            assert message is not None
            rest.append(message)
    assert [m.offset for m in rest] == [*range(1, len(rest) + 1)]
    assert {m.event.user for m in (first, *others, *rest)} == {"ada", "bob", "cy", "di", "eve"}


def test_a_replayed_partition_can_be_paused(site: Site) -> None:
    consumer = replay(site, "ada")
    consumer.pause([Partition("replayed", 0), Partition(site.topic, 0)])
    assert consumer.poll(0) is None
    consumer.resume([Partition(site.topic, 0)])
    assert consumer.poll(0) is not None


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_continues_the_trace_of_its_event(
    site: Site, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    @contextmanager
    def start(name: str, **more: Any) -> Iterator[None]:
        seen.append((name, more["context"], more["kind"]))
        yield
        seen.append("the span ends")

    def fake(name: str, **attributes: Any) -> None:
        module = ModuleType(name)
        module.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, name, module)

    fake("opentelemetry")
    fake("opentelemetry.propagate", extract=lambda carried: carried.get("traceparent"))
    tracer = SimpleNamespace(start_as_current_span=start)
    spans = SimpleNamespace(CONSUMER="consumer")
    fake("opentelemetry.trace", SpanKind=spans, get_tracer=lambda _name: tracer)
    app = app_of(site)

    def handle(message: Message[Any]) -> None:
        seen.append(message.event.user)

    async def ahandle(message: Message[Any]) -> None:
        handle(message)

    app.on(site.one.Visit)(ahandle if is_async else handle)
    headers = (("traceparent", b"00-1-2-01"), ("other", None))
    message = Message(site.visit("ada"), "visits", 0, 0, 0, None, headers, 1, 1)
    app.run(ReplayingConsumer(messages=[message]))
    assert seen == [("process visits", "00-1-2-01", "consumer"), "ada", "the span ends"]
