"""A damaged batch: what a consumer reports of it, and the offset after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition

from headworks._kafka.clients import KafkaConsumer
from headworks._kafka.damaged_batch import DamagedBatch, damaged_batch, offset_after
from headworks._kafka.records import Batch
from headworks._server.child_process import Service
from headworks.errors import UnreachableError
from tests.broker.counting import counting_broker, list_offsets_requests
from tests.damage import PATIENCE, batches, flip_bit, produce_batches, segment
from tests.waiting import until

pytestmark = pytest.mark.e2e

_numbers = itertools.count()
VALUES = [f"value-{n:04}-abcdefghijklmnop".encode() for n in range(40)]
ATTRIBUTES, LAST_DELTA, RECORD_COUNT = 22, 25, 60  # a byte of each, in the header


@dataclass
class Log:
    """A topic of 40 messages in batches of 10, on disk."""

    address: str
    topic: str
    path: Path
    headers: list[Batch]

    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.address}

    def read(self, start: int, **options: object) -> list[confluent_kafka.Message]:
        """Every event up to the end of the log, or to the first error."""
        properties = {**self.client(), "group.id": "damage", "enable.partition.eof": True}
        consumer = KafkaConsumer({**properties, **options})
        consumer.assign([TopicPartition(self.topic, 0, start)])
        found: list[confluent_kafka.Message] = []
        while not found or found[-1].error() is None:
            found += consumer.consume(1, PATIENCE)
            damaged_batch(found[-1])  # so that it closes with care
        consumer.close()
        return found

    def after(self, offset: int) -> int:
        return offset_after(self.client(), DamagedBatch(self.topic, 0, offset, "CRC"))


@pytest.fixture
def log(broker: Service, broker_folder: Path) -> Callable[..., Log]:
    def write(batch: int = 10) -> Log:
        topic = f"rotten-{next(_numbers)}"
        produce_batches(broker.address, topic, VALUES, batch=batch)
        path = segment(broker_folder, topic)
        return Log(broker.address, topic, path, batches(path))

    return write


def test_a_flipped_bit_is_reported_with_its_offset_and_not_returned(
    log: Callable[..., Log],
) -> None:
    rotten = log()
    flip_bit(rotten.path, rotten.headers[2])
    *before, last = rotten.read(0)
    assert [message.value() for message in before] == VALUES[:20]
    found = damaged_batch(last)
    assert found is not None
    assert (found.topic, found.partition, found.offset) == (rotten.topic, 0, 20)
    assert "CRC32C" in found.reason
    inside = damaged_batch(last, 23)
    assert inside is not None
    assert inside.place == f"{rotten.topic} partition 0 offset 23"


def test_without_the_check_the_wrong_value_is_returned_as_good(log: Callable[..., Log]) -> None:
    rotten = log()
    flip_bit(rotten.path, rotten.headers[2])
    values = [m.value() for m in rotten.read(0, **{"check.crcs": False}) if m.error() is None]
    assert len(values) == 40
    assert values != VALUES


def test_other_events_are_no_damage(log: Callable[..., Log]) -> None:
    *messages, end = log().read(0)
    assert len(messages) == 40
    problem = end.error()
    assert problem is not None
    assert problem.code() == KafkaError._PARTITION_EOF
    assert [damaged_batch(event) for event in (messages[0], end)] == [None, None]


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("at", [None, ATTRIBUTES, RECORD_COUNT])
def test_the_offset_after_is_the_first_of_the_next_batch(
    log: Callable[..., Log], number: int, at: int | None
) -> None:
    rotten = log()
    flip_bit(rotten.path, rotten.headers[number], at)
    first = number * 10
    assert rotten.after(first) == first + 10
    assert rotten.after(first + 4) == first + 10


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_damaged_batches_of_any_length_are_stepped_over_up_to_the_first_intact_one(
    log: Callable[..., Log], batch: int
) -> None:
    rotten = log(batch)
    for header in rotten.headers[1:4]:
        flip_bit(rotten.path, header)
    # One at a time, or all at once if the broker knows of them by now.
    at = batch
    while at < 4 * batch:
        after = rotten.after(at)
        assert after in (at + batch, 4 * batch)
        at = after


@pytest.mark.parametrize("rotten", [False, True])
def test_a_consumer_of_damage_ends_after_its_broker_has_answered(
    tmp_path: Path, *, rotten: bool
) -> None:
    """librdkafka hangs if it is refused a fetch while it ends: see the rules of `clients`."""
    topic = f"ended-{rotten}"
    with counting_broker(tmp_path / "log") as counting:
        produce_batches(counting.address, topic, VALUES, batch=10)
        path = segment(tmp_path / "log", topic)
        if rotten:
            flip_bit(path, batches(path)[2])
        consumer = KafkaConsumer({"bootstrap.servers": counting.address, "group.id": "damage"})
        consumer.assign([TopicPartition(topic, 0, 20)])
        (event,) = consumer.consume(1, PATIENCE)
        assert (damaged_batch(event) is not None) == rotten
        consumer.get_watermark_offsets(TopicPartition(topic, 0))
        before = list_offsets_requests(counting)
        consumer.close()
        assert (list_offsets_requests(counting) > before) == rotten
        consumer.close()


@pytest.mark.our_broker("Kafka does not read what it stores")
def test_an_intact_batch_between_two_that_the_broker_knows_of_is_not_stepped_over(
    log: Callable[..., Log],
) -> None:
    rotten = log()
    for number in (0, 1, 3):
        flip_bit(rotten.path, rotten.headers[number])
    for at in (0, 10, 30):
        rotten.read(at)  # the broker checks what the client got that leaves

    def are_known() -> bool:
        codes = [error.code() for at in (0, 10, 30) if (error := rotten.read(at)[-1].error())]
        return codes == [KafkaError.INVALID_MSG] * 3

    until(are_known)
    assert rotten.after(0) == rotten.after(4) == rotten.after(10) == 20
    assert rotten.after(30) == 40


@pytest.mark.our_broker("Kafka serves offsets of intact batches from the damaged one")
def test_a_last_offset_that_grew_hides_no_intact_batch(log: Callable[..., Log]) -> None:
    rotten = log()
    flip_bit(rotten.path, rotten.headers[1], LAST_DELTA)
    assert rotten.after(10) == 20


def test_a_batch_that_is_intact_is_not_stepped_over(log: Callable[..., Log]) -> None:
    assert log().after(10) == 10


def test_a_broker_that_does_not_answer_is_an_error_with_the_place() -> None:
    batch = DamagedBatch("orders", 3, 17, "CRC")
    client = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(UnreachableError, match=r"orders partition 3 offset 17: no broker"):
        offset_after(client, batch, timeout=0.5)
