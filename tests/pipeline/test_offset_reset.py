"""A consumer whose offset is not in the log continues where its `start` says, and nowhere else."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from consumer_sdk import Consumer, Message
from headworks._server.child_process import Service
from headworks.errors import UsageError
from tests.consumer_sdk.zookeeper_group.cluster import encoder
from tests.damage import PATIENCE, produce_batches
from tests.waiting import until

pytestmark = pytest.mark.e2e

STRATEGIES = ("range", "cooperative-sticky", "assigned-by-broker")


class Numbers:
    """A topic of two partitions, and the consumers of its one group."""

    def __init__(self, name: str, broker: Service, registry: Service, strategy: str) -> None:
        self.name, self.broker, self.registry = name, broker, registry
        self.config: dict[str, Any] = {"partition.assignment.strategy": strategy}
        if strategy == STRATEGIES[-1]:
            self.config = {"group.protocol": "consumer"}
        self.encode = encoder(registry.url, name)
        self.add(range(40))

    def add(self, numbers: range) -> None:
        values = list(map(self.encode, numbers))
        produce_batches(self.broker.address, self.name, values, partitions=2)

    def consumer(
        self, start: Literal["earliest", "latest"] = "earliest", reset: str | None = None
    ) -> Consumer[dict[str, Any]]:
        return Consumer(
            topics=[self.name],
            group=self.name,
            start=start,
            bootstrap=self.broker.address,
            registry=self.registry.url,
            config=self.config if reset is None else {**self.config, "auto.offset.reset": reset},
        )

    def remove_before(self, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        place = TopicPartition(self.name, 0, offset)
        for removed in admin.delete_records([place]).values():
            removed.result(PATIENCE)


def read(reading: Consumer[dict[str, Any]], count: int) -> list[int]:
    found: list[int] = []

    def enough() -> bool:
        message = reading.poll(1)
        found.extend(() if message is None else (message.event["number"],))
        return len(found) == count

    until(enough)
    return found


@pytest.fixture(params=STRATEGIES)
def numbers(request: pytest.FixtureRequest, broker: Service, registry: Service) -> Numbers:
    name = f"{request.function.__name__}-{request.param}".replace("test_", "").replace("_", "-")
    return Numbers(name, broker, registry, request.param)


def test_a_removed_offset_continues_at_the_first(numbers: Numbers) -> None:
    with numbers.consumer() as reading:
        assert read(reading, 5) == list(range(5))
    numbers.remove_before(20)
    with numbers.consumer() as reading:
        assert read(reading, 20) == list(range(20, 40))


def test_a_removed_offset_continues_at_the_end(numbers: Numbers) -> None:
    with numbers.consumer() as reading:
        assert read(reading, 5) == list(range(5))
    numbers.remove_before(20)
    with numbers.consumer("latest") as reading:
        until(lambda: reading.poll(0.1) is None and len(reading.assignment) == 2)
        added = itertools.count(40)

        def first() -> Message[dict[str, Any]] | None:
            """Read what comes first: where the end is, is asked for after the assignment."""
            number = next(added)
            numbers.add(range(number, number + 1))
            return reading.poll(1)

        found = until(first)
        assert found is not None
        begin, end = found.event["number"], next(added)
        assert begin >= 40
        numbers.add(range(end, end + 5))
        assert read(reading, end + 4 - begin) == list(range(begin + 1, end + 5))


def test_a_new_group_begins_at_the_end(numbers: Numbers) -> None:
    with numbers.consumer("latest") as reading:
        until(lambda: reading.poll(0.1) is None and len(reading.assignment) == 2)
        numbers.add(range(40, 45))
        assert read(reading, 5) == list(range(40, 45))


def test_a_removed_offset_is_an_error_if_the_user_wants_it(numbers: Numbers) -> None:
    with numbers.consumer() as reading:
        assert read(reading, 5) == list(range(5))
    numbers.remove_before(20)
    with (
        numbers.consumer(reset="error") as reading,
        pytest.raises(KafkaException, match="_AUTO_OFFSET_RESET"),
    ):
        until(lambda: reading.poll(1))


def test_members_that_the_broker_assigns_share_and_take_over(
    broker: Service, registry: Service
) -> None:
    numbers = Numbers("assigned", broker, registry, STRATEGIES[-1])
    with numbers.consumer() as one:
        assert sorted(read(one, 40)) == list(range(40))
        one.commit()
        with numbers.consumer() as two:
            until(lambda: [one.poll(0.1), two.poll(0.1)] and len(two.assignment) == 1)
            assert len(one.assignment) == 1
        numbers.add(range(40, 44))
        assert sorted(read(one, 4)) == list(range(40, 44))


def test_an_exception_is_refused_where_the_broker_matches(
    broker: Service, registry: Service
) -> None:
    with pytest.raises(UsageError, match=r"group\.protocol=consumer"):
        Consumer(
            matching="a.*",
            excluding="ab",
            group="exceptions",
            bootstrap=broker.address,
            registry=registry.url,
            config={"group.protocol": "consumer"},
        )
