"""How long a topic's messages are kept, on its page."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException

from headworks._console.sources.retention import RetentionReader, TopicRetention

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("configs", "found"),
    [
        ({"retention.ms": "5", "retention.bytes": "-1"}, TopicRetention(5, None, compacted=False)),
        ({"retention.ms": "-1", "retention.bytes": "9"}, TopicRetention(None, 9, compacted=False)),
        (
            {"retention.ms": "5", "cleanup.policy": "compact"},
            TopicRetention(None, None, compacted=True),
        ),
        (
            {"retention.ms": "5", "cleanup.policy": "compact,delete"},
            TopicRetention(5, None, compacted=True),
        ),
        ({}, TopicRetention(None, None, compacted=False)),
        ({"retention.ms": "soon"}, None),
    ],
)
def test_a_retention(configs: dict[str, str | None], found: TopicRetention | None) -> None:
    assert RetentionReader("b:1", describe=lambda _: configs)("t") == found


def test_a_topic_is_asked_for_once_a_minute_also_if_the_broker_refuses() -> None:
    now, asked = [0.0], list[str]()

    def describe(topic: str) -> Mapping[str, str | None]:
        asked.append(topic)
        if topic == "refused":
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        return {"retention.ms": "5"}

    read = RetentionReader("b:1", describe=describe, clock=lambda: now[0])
    for _ in range(3):
        assert read("t") == TopicRetention(5, None, compacted=False)
        assert read("refused") is None
    assert asked == ["t", "refused"]
    now[0] = 61.0
    read("t")
    assert asked == ["t", "refused", "t"]
