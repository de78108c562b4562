"""Logs and counters as events: sent like any other, and never in the service's way."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer
from headworks import _bundled_schemas
from headworks._server.child_process import Service
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from producer_sdk.operations import EventLogHandler, Metrics
from producer_sdk.operations._event import LogLine, MetricKind, MetricSample
from producer_sdk.testing import RecordingProducer

pytestmark = pytest.mark.unit


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("shop.orders")
    found.propagate = False
    found.setLevel(logging.DEBUG)
    yield found
    found.handlers.clear()


def test_a_log_line_is_an_event(logger: logging.Logger) -> None:
    producer = RecordingProducer()
    handler = EventLogHandler(producer, application="shop")
    logger.addHandler(handler)
    logger.warning("%d of %d", 3, 4, extra={"order": 7})
    try:
        raise KeyError("customer")
    except KeyError:
        logger.exception("no such customer")
    # Straight to the handler: the test's own capture of logs cannot print half a character.
    handler.handle(logging.makeLogRecord({"name": "shop", "msg": "\ud800 is half a character"}))
    first, second, third = producer.assert_sent(LogLine, 3)
    assert (first.level, first.logger, first.message) == ("WARNING", "shop.orders", "3 of 4")
    assert (first.fields, first.application, first.exception) == ({"order": "7"}, "shop", None)
    assert "KeyError: 'customer'" in (second.exception or "")
    assert third.message == "? is half a character"
    assert producer.sent[0].topic == "headworks.logs"


def test_a_log_line_never_harms_the_service(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        sent = 0

        def send(self, event: object) -> bool:
            Broken.sent += 1
            logger.error("logged while sending: must not come back here")
            raise RuntimeError("the producer is closed")

    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler = EventLogHandler(Broken(), application="shop")
    logger.addHandler(handler)
    logger.error("one")
    assert Broken.sent == 1
    handler.handle(logging.makeLogRecord({"name": "headworks.producer", "msg": "our own"}))
    assert Broken.sent == 1


def test_counters_are_sent_as_what_was_added() -> None:
    producer, now = RecordingProducer(), [1000.0]
    metrics = Metrics(producer, application="shop", every=3600, clock=lambda: now[0])
    metrics.count("orders", country="nl")
    metrics.count("orders", 2, country="nl")
    metrics.count("orders", country="de")
    metrics.gauge("queue", 5)
    metrics.gauge("queue", 3)
    now[0] += 60
    assert metrics.report() == 3
    metrics.count("orders", country="nl")
    now[0] += 60
    metrics.close()
    found = [(s.kind, s.name, s.labels, s.value) for s in producer.of(MetricSample)]
    assert found == [
        (MetricKind.COUNTER, "orders", {"country": "nl"}, 3),
        (MetricKind.COUNTER, "orders", {"country": "de"}, 1),
        (MetricKind.GAUGE, "queue", {}, 3),
        (MetricKind.COUNTER, "orders", {"country": "nl"}, 1),
    ]
    assert {s.interval_ms for s in producer.of(MetricSample)} == {60_000}
    assert producer.sent[0].key == b"shop|orders"


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_counts_from_nothing() -> None:
    producer = RecordingProducer()
    metrics = Metrics(producer, application="shop", every=0.05)
    with metrics._lock:  # as if another thread were counting
        child = os.fork()
    if child == 0:
        code = 1
        try:
            before = len(producer.sent)
            metrics.count("orders")
            while len(producer.sent) == before:
                time.sleep(0.01)
            code = int([s.value for s in producer.of(MetricSample)][before:] != [1])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    metrics.close()


def test_the_number_of_series_is_bounded_and_the_rest_counted() -> None:
    producer = RecordingProducer()
    with Metrics(producer, application="shop", every=3600, most_series=2) as metrics:
        for n in range(10):
            metrics.count("hits", path=f"/{n}")
        metrics.gauge("one more", 1)
    names = [(s.name, s.value) for s in producer.of(MetricSample)]
    assert names == [("hits", 1), ("hits", 1), ("headworks.metrics.dropped", 9)]


def register_bundled(registry: Service) -> None:
    client = RegistryClient(registry.url)
    for name, topic in (("log_line", "logs"), ("metric_sample", "metrics"), ("audit", "audit")):
        text = (_bundled_schemas.folder() / "headworks" / f"{name}.avsc").read_text(
            encoding="utf-8"
        )
        client.register(f"headworks.{topic}-value", text)


@pytest.mark.e2e
def test_they_go_through_a_real_broker(
    logger: logging.Logger, broker: Service, registry: Service, tmp_path: Path
) -> None:
    register_bundled(registry)
    with Producer(
        *(broker.address, registry.url),
        application="shop",
        state_dir=tmp_path,
        close_timeout=60,
    ) as producer:
        logger.addHandler(EventLogHandler(producer, application="shop"))
        logger.info("served")
        with Metrics(producer, application="shop", every=3600) as metrics:
            metrics.count("orders")
    found: dict[str, Any] = {}
    with Consumer[Any](
        [LogLine, MetricSample], group="ops", bootstrap=broker.address, registry=registry.url
    ) as consumer:
        for message in consumer:
            found[message.topic] = message.event
            if len(found) == 2:
                break
    assert found["headworks.logs"].message == "served"
    assert found["headworks.metrics"].name == "orders"


@pytest.mark.e2e
def test_the_exit_of_the_interpreter_sends_the_rest(
    broker: Service, registry: Service, tmp_path: Path
) -> None:
    register_bundled(registry)
    program = f"""
from producer_sdk import Producer
from producer_sdk.operations import Metrics
producer = Producer({broker.address!r}, {registry.url!r}, application="brief", state_dir="state",
                    registry_timeout=60, close_timeout=60)
Metrics(producer, application="brief", every=3600).count("starts", 2)
"""
    subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, check=True)
    with Consumer[Any](
        [MetricSample], group="brief", bootstrap=broker.address, registry=registry.url
    ) as consumer:
        found = next(m.event for m in consumer if m.event.application == "brief")
    assert (found.name, found.value) == ("starts", 2)
