"""Producers and consumers of ours wait without holding up greenlets."""

from __future__ import annotations

import time

import pytest

from headworks._kafka.clients import KafkaConsumer, KafkaProducer, serve

pytestmark = pytest.mark.unit


class _Polls(KafkaProducer):
    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        self.waits: list[float] = []

    def poll(self, timeout: float = -1, /) -> int:
        self.waits.append(timeout)
        return 0


def test_a_thread_waits_in_librdkafka() -> None:
    producer = _Polls()
    serve(producer, 0.25)
    assert producer.waits == [0.25]


def test_a_greenlet_waits_where_others_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)

    sleep.__module__ = "gevent.hub"
    monkeypatch.setattr(time, "sleep", sleep)
    producer = _Polls()
    serve(producer, 0.25)
    assert (producer.waits, slept) == ([0], [0.02])


class _Fetches(KafkaConsumer):
    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
        self.subscribe(["nothing"])


def test_a_greenlet_that_consumes_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, slept = time.sleep, list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        wait(seconds)

    sleep.__module__ = "gevent.hub"
    consumer = _Fetches()
    monkeypatch.setattr(time, "sleep", sleep)
    began = time.monotonic()
    assert consumer.consume(1, 0.05) == []
    assert time.monotonic() - began >= 0.05
    assert max(slept) <= 0.02, "it waits where others may run"
    slept.clear()
    assert consumer.consume(1, 0) == []
    assert slept == []
    monkeypatch.setattr(time, "sleep", wait)
    assert consumer.consume(1, 0.01) == []
    assert slept == [], "a thread waits in librdkafka"
    consumer.close()
