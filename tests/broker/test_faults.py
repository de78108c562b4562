"""A whole broker on a disk that fills up or breaks, with clients that go on asking."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.broker.build import batch
from tests.broker.clients import CONSUMERS, DEADLINE
from tests.broker.wire import Wire, fetch, fetched, produce, produced
from tests.soak.process import Broker

CORRUPT_MESSAGE, STORAGE_ERROR = 2, 56


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path, "--segment-bytes", "20000", faulty=True)
    made.start()
    admin = AdminClient({"bootstrap.servers": made.address})
    topics = admin.create_topics([NewTopic("t", 1, 1), NewTopic("other", 1, 1)])
    for future in topics.values():
        future.result(DEADLINE)
    yield made
    if made.alive:
        made.stop()


def test_a_full_disk_refuses_tears_nothing_and_heals(broker: Broker) -> None:
    full = broker.folder / "full"
    with Wire(broker.address) as wire:
        for round_ in range(5):
            wire.send(0, 7, produce("t", 0, bytes(batch(2)), acks=-1))
            assert produced(wire.receive()[1], "t") == (0, 2 * round_)
            full.touch()
            for acks in (-1, 1):
                wire.send(0, 7, produce("t", 0, bytes(batch(9, size=500)), acks=acks))
                assert produced(wire.receive()[1], "t")[0] == STORAGE_ERROR
            wire.send(1, 11, fetch("t", 0, 2 * round_))
            error, end, _ = fetched(wire.receive()[1])
            assert (error, end) == (0, 2 * round_ + 2), "readers do not notice"
            full.unlink()
    broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        wire.send(1, 11, fetch("t", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, 10)
    assert "cut" not in broker.words(), "nothing was torn"


def wait_for_more_refusals(broker: Broker, before: int) -> int:
    """How often the disk has been full, once that is more often than `before`."""
    deadline = time.monotonic() + DEADLINE
    while (count := broker.words().count("No space left")) <= before:
        assert time.monotonic() < deadline, "the disk was never full"
        time.sleep(0.01)
    return count


def test_an_idempotent_producer_goes_on_when_there_is_room_again(broker: Broker) -> None:
    full = broker.folder / "full"
    delivered: list[int] = []
    failed: list[Any] = []

    def report(error: Any, message: Any) -> None:
        if error is None:
            delivered.append(int(message.value()))
        else:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "retry.backoff.ms": 20,
            "linger.ms": 1,
        }
    )
    refused = 0
    for number in range(2000):
        if number % 400 == 200:
            producer.flush(DEADLINE)
            full.touch()
        if number % 400 == 300:
            refused = wait_for_more_refusals(broker, refused)
            full.unlink()
        producer.produce("t", b"%d" % number, partition=0, on_delivery=report)
        producer.poll(0.0005)
    assert producer.flush(DEADLINE) == 0
    assert failed == []
    assert refused >= 5
    found = CONSUMERS["confluent-kafka"](broker.address, "t", 2000)
    assert [m.value for m in found] == [b"%d" % number for number in range(2000)]


def test_a_disk_that_cannot_flush_ends_the_partition_and_only_that(broker: Broker) -> None:
    broken = broker.folder / "broken"
    with Wire(broker.address) as wire:
        for topic in ("t", "other"):
            wire.send(0, 7, produce(topic, 0, bytes(batch(2)), acks=-1))
            assert produced(wire.receive()[1], topic) == (0, 0)
        broken.touch()
        wire.send(0, 7, produce("t", 0, bytes(batch(3)), acks=-1))
        assert produced(wire.receive()[1], "t")[0] == STORAGE_ERROR
        broken.unlink()
        for acks in (-1, 1):  # it stays so: nobody knows what the kernel has dropped
            wire.send(0, 7, produce("t", 0, bytes(batch(3)), acks=acks))
            assert produced(wire.receive()[1], "t")[0] == STORAGE_ERROR
        wire.send(1, 11, fetch("t", 0, 0))
        assert fetched(wire.receive()[1])[:2] == (0, 2), "what was flushed is still served"
        wire.send(0, 7, produce("other", 0, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], "other") == (0, 2)
    assert "no longer writable" in broker.words()
    assert broker.stop() == 0
    broker.start()
    with Wire(broker.address) as wire:
        wire.send(0, 7, produce("t", 0, bytes(batch(1)), acks=-1))
        error, offset = produced(wire.receive()[1], "t")
        assert error == 0
        assert offset in (2, 5), "what could not be flushed may be there or not"


def test_damage_in_an_old_segment_is_answered_and_the_connection_lives(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        for _ in range(30):
            wire.send(0, 7, produce("t", 0, bytes(batch(1, size=2000)), acks=-1))
            assert produced(wire.receive()[1], "t")[0] == 0
    broker.stop()
    oldest = min((broker.logs / "t-0").glob("*.log"))
    data = bytearray(oldest.read_bytes())
    size = 12 + int.from_bytes(data[8:12])
    data[2 * size + 8] = 0x44  # the third batch says that it is more than a gigabyte
    oldest.write_bytes(data)
    broker.start()
    with Wire(broker.address) as wire:
        for offset, error in ((0, 0), (2, CORRUPT_MESSAGE), (2, CORRUPT_MESSAGE), (29, 0)):
            wire.send(1, 11, fetch("t", 0, offset))
            assert fetched(wire.receive()[1])[0] == error, offset
    assert broker.words().count("there is no batch at byte") == 1, "said once"
