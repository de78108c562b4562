"""Headers that the producer adds to an event, and its interceptors."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from consumer_sdk import Consumer
from headworks._server.child_process import Service
from headworks.errors import UsageError
from producer_sdk import Delivery, Interceptor, Producer, event_headers
from tests.producer_sdk.events import Site, new_site

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def producer(site: Site, **more: Any) -> Producer:
    return Producer(
        site.bootstrap,
        site.registry,
        application="c",
        state_dir=site.state,
        **{"audit_every": 3600, "close_timeout": 60.0, **more},
    )


def headers(site: Site, count: int) -> dict[str, dict[str, bytes | None]]:
    found = {}
    with Consumer(
        [site.one.Visit], group="h", bootstrap=site.bootstrap, registry=site.registry
    ) as consumer:
        for message in consumer:
            found[message.event.user] = dict(message.headers)
            if len(found) == count:
                return found
    raise AssertionError


def test_headers_of_program_request_and_call(site: Site) -> None:
    with producer(site, headers={"service": "shop", "host": "web-1"}) as to:
        to.send(site.visit("plain"))
        with event_headers(request="r1", host="web-2"):
            to.send(site.visit("inside"))
            with event_headers(step="two"):
                to.send(site.visit("nested"), headers={"request": b"mine"})
            thread = threading.Thread(target=lambda: to.send(site.visit("elsewhere")))
            thread.start()
            thread.join()
        to.send(site.visit("after"))
    found = headers(site, 5)
    program = {"service": b"shop", "host": b"web-1"}
    assert found["plain"] == found["after"] == found["elsewhere"] == program
    assert found["inside"] == {"service": b"shop", "host": b"web-2", "request": b"r1"}
    assert found["nested"] == {**found["inside"], "step": b"two", "request": b"mine"}


def test_the_active_trace_goes_along(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def inject(carrier: dict[str, str]) -> None:
        carrier["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    propagate = ModuleType("opentelemetry.propagate")
    propagate.inject = inject  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", propagate)
    active: dict[str, object] = {}
    context = ModuleType("opentelemetry.context")
    context.get_current = lambda: active  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.context", context)
    with producer(site) as to:
        to.send(site.visit("before"))
        active["current-span"] = object()
        to.send(site.visit("traced"), headers={"own": "1"})
    found = headers(site, 2)
    assert found["before"] == {}
    assert (found["traced"]["traceparent"] or b"").startswith(b"00-0af7651916cd43dd")
    assert found["traced"]["own"] == b"1"


def test_a_span_of_the_installed_opentelemetry_goes_along(site: Site) -> None:
    context = pytest.importorskip("opentelemetry.context")
    trace = pytest.importorskip("opentelemetry.trace")
    span = trace.NonRecordingSpan(trace.SpanContext(7, 9, False, trace.TraceFlags(1)))
    token = context.attach(trace.set_span_in_context(span))
    try:
        with producer(site) as to:
            to.send(site.visit("traced"))
    finally:
        context.detach(token)
    assert headers(site, 1)["traced"]["traceparent"] == b"00-%032x-%016x-01" % (7, 9)


class Watching(Interceptor):
    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def before_encode(self, event: Any) -> Any:
        event.user = event.user.upper()
        return event

    def after_enqueue(self, event: Any, *, taken: bool) -> None:
        self.seen.append((event.user, taken))
        raise RuntimeError("a hook that fails after the fact breaks nothing")

    def on_delivery(self, event: Any, delivery: Delivery) -> None:
        self.seen.append((event.user, delivery))
        raise RuntimeError("nor in the other thread")


def test_interceptors_see_an_event_at_every_stage(site: Site) -> None:
    watching = Watching()
    with producer(site, interceptors=[watching]) as to:
        assert to.send(site.visit("ada"))
        partition, offset = to.send_and_wait(site.visit("bob"), 60)
        assert to.flush(60) == 0
    assert set(headers(site, 2)) == {"ADA", "BOB"}
    assert ("ADA", True) in watching.seen
    assert ("BOB", Delivery(site.topic, partition, offset, None)) in watching.seen
    delivered = [what for who, what in watching.seen if isinstance(what, Delivery)]
    assert len(delivered) == 2


def test_an_interceptor_may_refuse_events_and_sees_failures(site: Site) -> None:
    class Refusing(Watching):
        def before_encode(self, event: Any) -> Any:
            raise PermissionError(event.user)

    with producer(site, interceptors=[Refusing()]) as to:
        with pytest.raises(PermissionError):
            to.send(site.visit("ada"))
        assert to.counts()["attempted"] == 0
    watching = Watching()
    options: dict[str, Any] = {"interceptors": [watching], "config": {"message.timeout.ms": 300}}
    options["close_timeout"] = 1.0  # nobody answers it
    with Producer(
        "127.0.0.1:1", site.registry, application="c", state_dir=site.state, **options
    ) as to:
        to.send(site.visit("lost"))
        assert to.flush(60) == 0
    (failed,) = [what for _, what in watching.seen if isinstance(what, Delivery)]
    assert failed.error is not None
    assert (failed.partition, failed.offset) == (-1, -1)


def test_a_partition_replaces_the_one_of_the_key(site: Site) -> None:
    with producer(site) as to:
        _, first = to.send_and_wait(site.visit("ada"), 60, partition=1)
        assert first == 0
        assert to.send(site.visit("ada"), partition=1)
        assert to.flush(60) == 0
        assert to.send_and_wait(site.visit("bob"), 60, partition=1) == (1, 2)
        with pytest.raises(UsageError, match="partition is '1'"):
            to.send(site.visit("ada"), partition="1")  # type: ignore[arg-type]
        assert to.totals.attempted == 3
