"""Which partitions messages without a key avoid, by what librdkafka tells of its connections."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.reporting import audit_topic_sender
from headworks._kafka.clients import KafkaProducer
from headworks._kafka.partitioner import (
    ANY,
    KeylessPartitioner,
    _any_unreachable,
    reachable_partitions,
)
from headworks._server.child_process import Service
from tests.broker.clients import eventually

pytestmark = pytest.mark.unit

UP = {"state": "UP", "connects": 1, "disconnects": 0, "stateage": 60e6}
REFUSED = {"state": "TRY_CONNECT", "connects": 3, "disconnects": 1, "stateage": 0.5e6}
LONG_AGO = {**REFUSED, "stateage": 11e6}
IDLE = {"state": "TRY_CONNECT", "connects": 1, "disconnects": 1, "stateage": 1e6}
NOT_NEEDED = {"state": "INIT", "connects": 0, "disconnects": 0, "stateage": 60e6}


def told(leaders: list[int], *brokers: dict[str, Any]) -> dict[str, Any]:
    """Statistics of a topic `t` led so, and of brokers 1, 2, .. in these states."""
    parts = {str(n): {"partition": n, "leader": leader} for n, leader in enumerate(leaders)}
    parts["-1"] = {"partition": -1, "leader": -1}
    return {
        "brokers": {f"b{n}": {"nodeid": n, **state} for n, state in enumerate(brokers, 1)},
        "topics": {"t": {"partitions": parts}},
    }


def text(statistics: Mapping[str, Any]) -> str:
    """As librdkafka writes it."""
    return json.dumps(statistics, separators=(",", ":"))


@pytest.mark.parametrize(
    ("statistics", "left"),
    [
        (told([1, 2, 3], UP, UP, UP), None),
        (told([1, 2, 3], UP, REFUSED, UP), (0, 2)),
        (told([1, -1, 3], UP, UP, UP), (0, 2)),
        (told([1, -1, 3], UP, UP, REFUSED), (0,)),
        (told([1, 2, 3], UP, IDLE, NOT_NEEDED), None),
        (told([1, 2, 3], UP, LONG_AGO, UP), None),
        (told([2, -1, 2], UP, REFUSED, UP), None),
    ],
)
def test_what_cannot_be_reached_is_left_out_while_anything_can(
    statistics: dict[str, Any], left: tuple[int, ...] | None
) -> None:
    assert reachable_partitions(statistics).get("t") == left
    partitioner = KeylessPartitioner()
    partitioner.update(text(statistics))
    assert {partitioner.partition("t") for _ in range(1000)} == set(left or [ANY])


@pytest.mark.contract
def test_librdkafka_writes_what_is_looked_for(broker: Service) -> None:
    heard: list[str] = []
    properties = {"statistics.interval.ms": 100, "stats_cb": heard.append}
    producer = KafkaProducer({"bootstrap.servers": broker.address, **properties})
    producer.produce("detour", b"x")
    assert producer.flush(30) == 0
    del heard[:]
    eventually(lambda: producer.poll(0.1) >= 0 and bool(heard))
    assert heard[0].count('"leader":-1') == heard[0].count('"partition":-1,') == 1
    assert heard[0].count('"brokers":{') == 1
    assert not _any_unreachable(heard[0])


def test_audit_counts_take_the_same_way() -> None:
    partitioner, sent = KeylessPartitioner(), list[int]()
    client: Any = SimpleNamespace(
        produce=lambda _topic, _value, partition, **_: sent.append(partition)
    )
    send = audit_topic_sender(client, partitioner)
    assert send(b"x", print)
    statistics = told([1, 2, 3], UP, REFUSED, UP)
    statistics["topics"][AUDIT_TOPIC] = statistics["topics"].pop("t")
    partitioner.update(text(statistics))
    assert all(send(b"x", print) for _ in range(1000))
    assert (sent[0], set(sent[1:])) == (ANY, {0, 2})


def test_reachable_partitions_share_the_messages_and_callbacks_still_run() -> None:
    heard: list[str] = []
    partitioner = KeylessPartitioner()
    properties = partitioner.properties({"stats_cb": heard.append, "client.id": "x"})
    assert properties["client.id"] == "x"
    assert partitioner.partition("t") == ANY
    for number in range(10):
        properties["stats_cb"](text(told([1, 2, 3, 1], UP, REFUSED, UP)))
        assert len(heard) == number + 1
        drawn = Counter(partitioner.partition("t") for _ in range(900))
        assert set(drawn) == {0, 2, 3}
        assert min(drawn.values()) >= 200
    assert partitioner.partition("other") == ANY
    properties["stats_cb"](text(told([1, 2, 3, 1], UP, UP, UP)))
    assert partitioner.partition("t") == ANY
