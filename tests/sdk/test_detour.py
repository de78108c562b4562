"""Which partitions messages without a key avoid, by what librdkafka tells of its connections."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from producer_sdk.detour import ANY, Detour, reachable

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
        ({}, None),
    ],
)
def test_what_cannot_be_reached_is_left_out_while_anything_can(
    statistics: dict[str, Any], left: tuple[int, ...] | None
) -> None:
    assert reachable(statistics).get("t") == left


def test_what_can_be_reached_gets_its_share_and_who_listened_still_hears() -> None:
    heard: list[str] = []
    detour = Detour()
    properties = detour.client({"stats_cb": heard.append, "client.id": "x"})
    assert properties["client.id"] == "x"
    assert detour.partition("t") == ANY
    for number in range(10):
        properties["stats_cb"](json.dumps(told([1, 2, 3, 1], UP, REFUSED, UP)))
        assert len(heard) == number + 1
        drawn = Counter(detour.partition("t") for _ in range(900))
        assert set(drawn) == {0, 2, 3}
        assert min(drawn.values()) >= 200
    assert detour.partition("other") == ANY
    properties["stats_cb"](json.dumps(told([1, 2, 3, 1], UP, UP, UP)))
    assert detour.partition("t") == ANY
