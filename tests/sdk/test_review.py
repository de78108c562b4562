"""What is cut short loses nothing: a batch of a spill, a poll for asyncio, a message's decoding."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer
from consumer_sdk._membership import BrokerMembership
from headworks._kafka.partitioner import Detour
from producer_sdk._spill import Spill, Spilled, leftover_spills
from producer_sdk._transport import _SPILL_BATCH, Running


class _Client:
    """A broker's client that acknowledges when it is told to."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.values: list[bytes] = []

    def produce(self, _topic: str, value: bytes, _key: Any, *, on_delivery: Any, **_: Any) -> None:
        self.values.append(value)
        self.reports.append(on_delivery)

    def acknowledge(self) -> None:
        reports, self.reports = self.reports, []
        for report in reports:
            report(None, None)


class _Slot:
    def report(self, _error: Any, _message: Any) -> None:
        pass


def test_what_was_acknowledged_of_a_spill_is_not_sent_again_after_a_crash(tmp_path: Path) -> None:
    spill = Spill(tmp_path, limit=1 << 20)
    total = 2 * _SPILL_BATCH + 1
    for n in range(total):
        assert spill.put(Spilled("t", b"%d" % n, None, 0, None))
    running: Any = object.__new__(Running)
    running.client = client = _Client()
    running._detour = Detour()
    running._spill, running._respilling = spill, deque([spill])
    running._pending, running._outstanding, running._closing = deque(), 0, False
    running._slot_of = lambda _spill, _message: _Slot()

    for _ in range(2):  # take a batch, send it
        running._send_spilled()
        running._send_spilled()
        client.acknowledge()
    running._send_spilled()  # the third batch is taken, and then the process dies

    spill._lock.acquire()  # nobody writes any more
    (tmp_path / "dead").mkdir()
    for path in tmp_path.glob("*.spill"):
        (tmp_path / "dead" / path.name).write_bytes(path.read_bytes())
    left = [m.value for found in leftover_spills(tmp_path / "dead") for m in found.take(total)]
    assert left == [b"%d" % n for n in range(2 * _SPILL_BATCH, total)]
    assert client.values[: 2 * _SPILL_BATCH] == [b"%d" % n for n in range(2 * _SPILL_BATCH)]


class _Raw:
    def __init__(self, number: int) -> None:
        self.number = number

    def error(self) -> None:
        return None


class _Fetches:
    """librdkafka's consumer: message 0, once it may; then nothing."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()
        self.stored: list[int] = []
        self._left = [_Raw(0)]

    def consume(self, _most: int, timeout: float) -> list[Any]:
        self.asked.set()
        self.may.wait(60)
        left, self._left = self._left, []
        return left

    def store_offsets(self, message: Any) -> None:
        self.stored.append(message.number)


def _reading(fetches: _Fetches) -> Any:
    consumer: Any = object.__new__(Consumer)
    membership: Any = object.__new__(BrokerMembership)
    membership.client, membership._buffer = fetches, []
    consumer._membership, consumer._tier, consumer._processed = membership, None, None
    consumer._decode = lambda raw: f"message {raw.number}"
    return consumer


async def _cancelled_while_a_message_comes(fetches: _Fetches, consumer: Any) -> Any:
    polling = asyncio.create_task(consumer.apoll(10))
    await asyncio.to_thread(fetches.asked.wait, 60)
    polling.cancel()
    asyncio.get_running_loop().call_later(0.05, fetches.may.set)
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert consumer._processed is None  # or `close` would commit what nobody was given
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
    decode = consumer._decode

    def fails(_raw: Any) -> str:
        raise BufferError("the queue of dead letters is full")

    consumer._decode = fails
    with pytest.raises(BufferError):
        consumer.poll(0)
    consumer._decode = decode
    assert consumer.poll(0) == "message 0"
