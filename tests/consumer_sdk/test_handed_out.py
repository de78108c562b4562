"""A member that loses a partition: it commits what has ended, and begins nothing more."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message as Raw

from consumer_sdk._handed_out import HandedOut
from consumer_sdk._message import Partition
from consumer_sdk._message_step import PythonStep

pytestmark = pytest.mark.unit

PLACE = Partition("views", 0)


class _Client:
    def __init__(self) -> None:
        self.stored: list[int] = []

    def store_offsets(self, offsets: list[Any]) -> None:
        self.stored += [each.offset for each in offsets]


def _raw(offset: int) -> Raw:
    return Raw(topic=PLACE.topic, partition=PLACE.partition, offset=offset, value=b"")


def _beside(count: int) -> tuple[HandedOut, PythonStep, list[Raw]]:
    """Return messages that were handed over, and one more that the dispatcher has."""
    step, raws = PythonStep(), [_raw(offset) for offset in range(count + 1)]
    handed = HandedOut(step)
    for raw in raws[:-1]:
        step.current = raw
        handed.hand_over(raw)
    step.current = raws[-1]
    return handed, step, raws


def test_no_handler_begins_while_a_partition_is_taken_back() -> None:
    handed, step, raws = _beside(2)
    begun: list[bool] = []

    def is_busy() -> bool:
        begun.append(handed.begin(raws[1]))
        return True

    handed.take_back({PLACE}, is_busy, is_closing=False)
    assert not any(begun)
    assert not handed.begin(raws[0])
    handed.hand_over(raws[2])  # the dispatcher did not know yet
    assert not handed.begin(raws[2])
    assert step.current is None


def test_a_handler_that_ends_while_its_partition_is_taken_back_is_committed() -> None:
    handed, _, raws = _beside(2)
    assert handed.begin(raws[0])
    client: Any = _Client()
    handed.processed(raws[0])
    handed.take_back({PLACE}, lambda: True, is_closing=False)
    handed.store(client)
    assert client.stored == [1]


def test_a_message_alone_gets_a_moment_while_its_partition_is_taken_back() -> None:
    step, raw = PythonStep(), _raw(0)
    handed, step.current = HandedOut(step), raw

    def is_busy() -> bool:
        handed.processed(raw)
        return True

    handed.take_back({PLACE}, is_busy, is_closing=False)
    client: Any = _Client()
    handed.store(client)
    assert client.stored == [1]
