"""The test double behaves as the producer it stands for."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from headworks.codec import EncodeError
from headworks.errors import UsageError
from producer_sdk import Producer
from producer_sdk.testing import RecordingProducer
from tests.headworks.codec.generated_packages import build
from tests.producer_sdk.events import AT, visit_schema

pytestmark = pytest.mark.unit


@pytest.fixture
def web(tmp_path: Path) -> Any:
    return build(tmp_path, {"visit.avsc": visit_schema("visits", 1)})["web"]


def test_it_keeps_what_is_sent(web: Any) -> None:
    with RecordingProducer() as producer:
        event = web.Visit(user="ada", at=AT, seconds=1)
        assert producer.send(event, headers={"a": "b"})
        assert asyncio.run(producer.asend(event, key=b"own"))
        assert producer.send_and_wait(event, 1) == (0, 2)
    assert producer.assert_sent(web.Visit, 3) == [event] * 3
    first, second, _ = producer.sent
    assert (first.topic, first.key, first.headers) == ("visits", b"ada", {"a": "b"})
    assert first.timestamp == int(AT.timestamp() * 1000)
    assert second.key == b"own"
    with pytest.raises(AssertionError, match="3 events of Visit were sent, expected 2"):
        producer.assert_sent(web.Visit, 2)
    with pytest.raises(AssertionError, match="0 events of dict were sent, expected at least one"):
        producer.assert_sent(dict)
    with pytest.raises(UsageError, match="closed"):
        producer.send(event)


def test_it_refuses_what_the_producer_refuses(web: Any) -> None:
    producer = RecordingProducer()
    with pytest.raises(EncodeError, match="seconds"):
        producer.send(web.Visit(user="ada", at=AT, seconds=None))
    with pytest.raises(TypeError):
        producer.send("text")  # type: ignore[arg-type]
    assert producer.events == []


@pytest.mark.parametrize("method", ["send", "asend", "send_and_wait", "flush", "close"])
def test_its_methods_are_the_producers(method: str) -> None:
    own, real = (
        [(p.name, p.kind) for p in inspect.signature(getattr(cls, method)).parameters.values()]
        for cls in (RecordingProducer, Producer)
    )
    assert own == real


def test_a_given_partition_is_recorded_and_checked(web: Any) -> None:
    producer = RecordingProducer()
    event = web.Visit(user="ada", at=AT, seconds=1)
    assert producer.send_and_wait(event, 1, partition=3) == (3, 0)
    assert producer.sent[0].partition == 3
    with pytest.raises(UsageError, match="partition is -1"):
        producer.send(event, partition=-1)
