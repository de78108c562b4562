"""Handlers that take longer than a member may be silent: others go on, and nobody is evicted."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Message, Partition, _held_back
from consumer_sdk.testing import ReplayingConsumer
from headworks._server.child_process import Service
from tests.consumer_sdk.test_beside import committed, either, send
from tests.consumer_sdk.test_handlers import app_of, run_until
from tests.producer_sdk.events import Site, new_site
from tests.waiting import PATIENCE, until, within_some_time

pytestmark = pytest.mark.e2e
_INTERVALS = (1.5, 6.0, 24.0)  # seconds; the next one if the machine stands still for longer


def config(interval: float) -> dict[str, Any]:
    """The properties of a member that may be silent for so many seconds."""
    return {
        "session.timeout.ms": int(interval * 700),
        "heartbeat.interval.ms": 100,
        "max.poll.interval.ms": int(interval * 1000),
    }


@pytest.fixture
def make_site(tmp_path: Path, broker: Service, registry: Service) -> Callable[[], Site]:
    """Makes topics of this test's own."""
    numbers = itertools.count()

    def make() -> Site:
        return new_site(tmp_path / str(next(numbers)), broker.address, registry.url)

    return make


@pytest.mark.parametrize("is_async", [False, True])
def test_a_slow_key_holds_up_its_partition_alone(
    make_site: Callable[[], Site], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def check(interval: float) -> None:
        caplog.clear()
        site = make_site()
        behind = [("slow", number) for number in range(60)]  # more than there is room for
        send(site, *behind, partition=0)
        lost: list[Partition] = []
        app = app_of(site, config=config(interval), on_revoked=lost.extend, commit_every=0.2)
        handled, while_slow = list[int](), list[int]()

        def others() -> int:
            return sum(each >= 1000 for each in handled)

        def handle(message: Message[Any]) -> None:
            if message.event.user == "slow" and message.event.seconds == 0:
                began = time.monotonic()
                new = [(f"user{number}", 1000 + number) for number in range(40)]
                send(site, *new, partition=1)
                until(lambda: others() >= 40, 2 * PATIENCE)
                while time.monotonic() - began < 2 * interval:
                    time.sleep(0.05)
                while_slow.extend((others(), len(lost)))
            handled.append(message.event.seconds)

        app.on(site.one.Visit, concurrency=2)(either(handle, is_async=is_async))
        run_until(app, lambda: len(handled) >= 100)
        assert while_slow == [40, 0], "the other partition went on, and both stayed here"
        assert sorted(handled) == [*range(60), *range(1000, 1040)], "once each"
        assert [each for each in handled if each < 1000] == list(range(60)), "in their order"
        assert committed(site, site.topic) == 100
        assert not [each for each in caplog.messages if "poll" in each]

    within_some_time(check, *_INTERVALS)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stop_waits_for_a_slow_handler_as_a_member(
    make_site: Callable[[], Site], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def check(interval: float) -> None:
        caplog.clear()
        site = make_site()
        send(site, *[(f"user{number}", number) for number in range(4)], partition=0)
        app, handled = app_of(site, config=config(interval)), list[int]()

        def handle(message: Message[Any]) -> None:
            if message.event.seconds == 0:
                until(lambda: len(handled) == 3)
                app.stop()
                time.sleep(3 * interval)  # it is evicted only after two
            handled.append(message.event.seconds)

        app.on(site.one.Visit, concurrency=2)(either(handle, is_async=is_async))
        app.run()
        assert handled == [1, 2, 3, 0]
        assert committed(site, site.topic) == 4, "nobody else repeats it"
        assert not [each for each in caplog.messages if "poll" in each]

    within_some_time(check, *_INTERVALS)


def test_a_slow_handler_holds_up_no_other_handler(make_site: Callable[[], Site]) -> None:
    def check(interval: float) -> None:
        site, other = make_site(), make_site()
        send(site, *[("slow", number) for number in range(60)])
        send(other, *[(f"user{number}", number) for number in range(40)])
        app, seen, may = app_of(site, config=config(interval)), list[str](), threading.Event()

        @app.on(site.one.Visit)
        def handle_slow(message: Message[Any]) -> None:
            if message.event.seconds == 0:
                assert may.wait(60)
            seen.append("slow")

        @app.on(other.one.Visit, concurrency=2)
        def handle(_message: Message[Any]) -> None:
            seen.append("other")
            if seen.count("other") == 40:
                may.set()

        run_until(app, lambda: len(seen) >= 100)
        assert seen[:40] == ["other"] * 40

    within_some_time(check, *_INTERVALS)


def test_a_partition_that_waits_long_is_logged_once(
    make_site: Callable[[], Site], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_held_back, "_LONG_SECONDS", 0.2)
    site = make_site()
    app, done = app_of(site), list[int]()

    @app.on(site.one.Visit, concurrency=2)
    def handle(message: Message[Any]) -> None:
        if message.event.seconds == 0:
            until(lambda: bool(caplog.messages))
            time.sleep(0.3)
        done.append(message.event.seconds)

    app.run(ReplayingConsumer([site.visit("ada", seconds=number) for number in range(30)]))
    assert done == list(range(30))
    (line,) = caplog.messages
    assert "partition 0 waits at offset" in line
