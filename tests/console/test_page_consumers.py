"""Consumers of pages: open from one page to the next, and closed after a page that failed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from headworks._console.sources import messages, page_consumers
from headworks._console.sources.messages import MessageReader
from headworks._console.sources.page_consumers import BusyError, PageConsumers
from headworks._kafka.clients import KafkaConsumer
from headworks._server.child_process import Service
from headworks.errors import RefusedError, UnreachableError
from headworks.registry_client import RegistryClient
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

TOPICS = ("page.consumers.a", "page.consumers.b")
COUNT = 300


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[KafkaConsumer]:
    """The consumers that pages have opened."""
    found: list[KafkaConsumer] = []

    def open_one(properties: dict[str, object]) -> KafkaConsumer:
        found.append(KafkaConsumer(properties))
        return found[-1]

    monkeypatch.setattr(page_consumers, "KafkaConsumer", open_one)
    return found


@pytest.fixture
def consumers(broker: Service) -> Iterator[PageConsumers]:
    lent = PageConsumers(broker.address)
    yield lent
    lent.close()


def test_pages_share_a_consumer_and_see_their_own_messages(
    broker: Service,
    registry: Service,
    opened: list[KafkaConsumer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "_TIMEOUT_SECONDS", PATIENCE)
    producer = Producer({"bootstrap.servers": broker.address})
    for n in range(COUNT):
        for topic in TOPICS:
            producer.produce(topic, f"{topic} {n}", partition=0)
    producer.flush()
    reader, chance = MessageReader(broker.address, RegistryClient(registry.url)), Random(7)
    for _ in range(100):
        topic, start, limit = chance.choice(TOPICS), chance.randrange(COUNT), chance.randint(1, 40)
        with reader.connected() as page:
            bounds = page.bounds(topic, 1)
            ends = {0: bounds[0][1]}
            found = page.read(
                topic, {0: start}, ends, latest_version=None, key_version=None, limit=limit
            )
        seen = [(row.offset, row.event) for row in found.rows]
        assert seen == [(n, f"{topic} {n}") for n in range(start, min(start + limit, COUNT))]
    assert len(opened) == 1
    reader.close()


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RefusedError),
        (KafkaError._ALL_BROKERS_DOWN, UnreachableError),
    ],
)
def test_a_page_that_fails_closes_its_consumer(
    consumers: PageConsumers, opened: list[KafkaConsumer], code: int, raised: type[Exception]
) -> None:
    with pytest.raises(raised), consumers.lend():
        raise KafkaException(KafkaError(code))
    with pytest.raises(RuntimeError, match="closed"):
        opened[0].assignment()
    with consumers.lend() as again:
        assert again is opened[1]


def test_no_more_pages_than_a_few_read_and_a_lent_consumer_is_closed_in_the_end(
    consumers: PageConsumers, opened: list[KafkaConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_consumers, "_SLOT_WAIT_SECONDS", 0.01)
    with consumers.lend(), consumers.lend(), consumers.lend(), consumers.lend() as last:
        with pytest.raises(BusyError), consumers.lend():
            pass
        consumers.close()
    for one in (*opened, last):
        with pytest.raises(RuntimeError, match="closed"):
            one.assignment()
