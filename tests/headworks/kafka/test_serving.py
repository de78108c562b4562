"""A producer of ours is served without holding up greenlets."""

from __future__ import annotations

import time

import pytest

from headworks._kafka.clients import KafkaProducer, serve

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
