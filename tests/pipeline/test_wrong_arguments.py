"""Wrong arguments of the SDKs: refused where they are given, and never taken for another value."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from consumer_sdk import Consumer, OnPoison, PoisonMessageError
from headworks._server.child_process import Service
from headworks.errors import UsageError
from producer_sdk import Producer, WhenFull, event_headers
from producer_sdk.testing import RecordingProducer
from tests.pipeline.conftest import Topic
from tests.pipeline.test_consumer import AT, consumer, poison
from tests.waiting import until

pytestmark = pytest.mark.e2e

Make = Callable[..., Producer]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"on_poison": "nonsense"}, "on_poison is 'nonsense', and none of 'stop', 'skip', 'dead-"),
        ({"on_poison": True}, "on_poison is True"),
        ({"group": ""}, "group is ''"),
        ({"group": None}, "group is None"),
        ({"application": ""}, "application is ''"),
        ({"start": "earlist"}, "start is 'earlist'"),
        ({"membership": "zookeper"}, "membership is 'zookeper'"),
        ({"topics": "orders"}, "topics is 'orders', and not a list"),
        ({"topics": (), "events": Topic}, "events is .*, and not a list"),
        ({"config": {"fetch.max.byte": 1}}, "librdkafka refuses .*fetch.max.byte"),
    ],
)
def test_a_consumer_refuses(wrong: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"topics": ["t"], "group": "g", "bootstrap": "127.0.0.1:1", **wrong}
    with pytest.raises(UsageError, match=words) as caught:
        Consumer(**given)
    assert caught.value.fix


def test_a_closed_consumer_says_so(topic: Topic, broker: Service, registry: Service) -> None:
    reading = consumer(topic, broker, registry)
    reading.close()
    with pytest.raises(UsageError, match="the consumer is closed"):
        reading.poll(0)
    with pytest.raises(UsageError, match="the consumer is closed"):
        reading.commit()
    assert reading.assignment == []
    assert list(reading) == []


def test_an_empty_group_does_not_abort_the_process() -> None:
    code = "from consumer_sdk import Consumer; Consumer(topics=['t'], group='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "UsageError" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"when_full": "bogus"}, "when_full is 'bogus', and none of 'drop-new', 'block', 'spill'"),
        ({"queue_messages": 0}, "queue_messages is 0"),
        ({"application": ""}, "application is ''"),
        ({"queue_bytes": -1}, "queue_bytes is -1"),
        ({"block_ms": -1}, "block_ms is -1"),
        ({"headers": {"n": 1}}, "header 'n' is of type int"),
        ({"config": {"linger": 1}}, "librdkafka refuses .*linger"),
    ],
)
def test_a_producer_refuses(producer: Make, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        producer(**wrong)
    assert caught.value.fix


def test_the_words_mean_what_the_enumerations_mean(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    poison(topic, broker)
    word: Any = "stop"
    with (
        consumer(topic, broker, registry, on_poison=word) as reading,
        pytest.raises(PoisonMessageError),
    ):
        until(lambda: reading.poll(1))
    assert OnPoison("skip") is OnPoison.SKIP
    with producer(when_full="spill") as spilling:
        assert spilling._config.spill_bytes > 0
    with producer(when_full=WhenFull.BLOCK, block_ms=70) as blocking:
        assert blocking._wait_ms == 70


WRONG: list[dict[str, Any]] = [
    {"headers": {"n": 1}},
    {"headers": {1: b""}},
    {"headers": [("n", b"")]},
    {"key": 5},
    {"key": bytearray(b"k")},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_key_or_header_is_refused_before_it_is_counted(
    producer: Make, topic: Topic, wrong: dict[str, Any]
) -> None:
    event = topic.v1.Click(user="a", at=AT, count=1)
    recording = RecordingProducer()
    with producer() as running:
        for each in (running, recording):
            with pytest.raises(UsageError, match=r"^(key|headers?) .*(is|are) of type ") as caught:
                each.send(event, **wrong)
            assert caught.value.fix
        assert running.flush(60) == 0
        assert not any(running.counts().values())
    assert recording.sent == []


def test_headers_of_a_request_are_refused_as_well() -> None:
    number: Any = 1
    with pytest.raises(UsageError, match="header 'n'"), event_headers(n=number):
        pass


def test_a_key_may_be_text(
    producer: Make, topic: Topic, broker: Service, registry: Service
) -> None:
    text: Any = "ключ"
    with producer() as running:
        running.send(topic.v1.Click(user="a", at=AT, count=1), key=text)
    with consumer(topic, broker, registry) as reading:
        message = until(lambda: reading.poll(1))
        assert message is not None
        assert message.key == text.encode()
