"""A poll that is cancelled, or whose decoding fails, loses no message."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from consumer_sdk import Consumer
from consumer_sdk._application_thread import ApplicationThread
from consumer_sdk._broker_membership import BrokerMembership
from consumer_sdk._fetch_buffer import FetchBuffer, FetchLimits
from consumer_sdk._handed_out import HandedOut
from consumer_sdk._message import Partition

pytestmark = pytest.mark.unit


class _Raw:
    def __init__(self, number: int) -> None:
        self.number = number

    def topic(self) -> str:
        return "views"

    def partition(self) -> int:
        return 0

    def __len__(self) -> int:
        return 1

    def error(self) -> None:
        return None


class _Fetches:
    """librdkafka's consumer: message 0, once it may; then nothing."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()
        self.stored: list[int] = []
        self.left = [_Raw(0)]

    def consume(self, _most: int, timeout: float) -> list[Any]:
        self.asked.set()
        self.may.wait(60)
        left, self.left = self.left, []
        return left

    def store_offsets(self, message: Any) -> None:
        self.stored.append(message.number)


def _reading(fetches: _Fetches) -> Any:
    consumer: Any = object.__new__(Consumer)
    membership: Any = object.__new__(BrokerMembership)
    membership.client, membership._fetched = fetches, FetchBuffer(FetchLimits())
    membership._application = ApplicationThread()
    membership.step = consumer._step = membership._application.step
    handed_out = HandedOut(membership.step)
    membership._handed_out, membership.has_lost = handed_out, handed_out.has_lost
    membership._failure = None
    membership._is_held, membership.polls = False, 0
    consumer._membership, consumer._audit_tier = membership, None
    decode = lambda raw: f"message {raw.number}"  # noqa: E731
    consumer._decoders = SimpleNamespace(message=decode, known_message=decode)
    return consumer


async def _cancelled_while_a_message_comes(fetches: _Fetches, consumer: Any) -> Any:
    polling = asyncio.create_task(consumer.apoll(10))
    await asyncio.to_thread(fetches.asked.wait, 60)
    polling.cancel()
    asyncio.get_running_loop().call_later(0.05, fetches.may.set)
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert consumer._last is None  # or `close` would commit what nobody was given
    return await consumer.apoll(1)


def test_a_poll_that_is_cancelled_loses_no_message() -> None:
    fetches = _Fetches()
    consumer = _reading(fetches)
    assert asyncio.run(_cancelled_while_a_message_comes(fetches, consumer)) == "message 0"
    assert fetches.stored == []


def test_a_message_comes_again_whatever_its_decoding_raised() -> None:
    fetches = _Fetches()
    fetches.may.set()
    consumer = _reading(fetches)
    decode = consumer._decoders.message

    def fails(_raw: Any) -> str:
        raise BufferError("the queue of dead letters is full")

    consumer._decoders.message = fails
    with pytest.raises(BufferError):
        consumer.poll(0)
    consumer._decoders.message = decode
    assert consumer.poll(0) == "message 0"


def test_a_message_whose_partition_is_lost_while_it_is_decoded_is_not_returned() -> None:
    """Decoding the first message of a schema waits for the registry."""
    fetches = _Fetches()
    fetches.may.set()
    fetches.left = [_Raw(0), _Raw(1)]
    consumer = _reading(fetches)
    decode = consumer._decoders.message

    def lose_first(raw: Any) -> Any:
        if raw.number == 0:
            gone = {Partition("views", 0)}
            consumer._membership._handed_out.take_back(gone, lambda: False, is_closing=False)
        return decode(raw)

    consumer._decoders.message = lose_first
    assert consumer.poll(0) == "message 1"
