"""A seek asks the broker once for all partitions, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from consumer_sdk import Consumer
from headworks._server.child_process import Service
from producer_sdk import Producer
from tests.broker.counting import counting_broker, list_offsets_requests
from tests.producer_sdk.events import AT, Site, new_site

pytestmark = pytest.mark.e2e

USERS = [f"user{number}" for number in range(30)]  # in most of the partitions, not in all
BEFORE_1970 = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1)


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Service]:
    with counting_broker(tmp_path / "log") as broker:
        yield broker


@pytest.fixture
def site(tmp_path: Path, counting: Service, registry: Service) -> Site:
    """A topic of twelve partitions, with an event of each user, a minute apart."""
    site = new_site(tmp_path, counting.address, registry.url)
    admin = AdminClient({"bootstrap.servers": counting.address})
    admin.create_topics([NewTopic(site.topic, 12, 1)])[site.topic].result(60)
    options: dict[str, Any] = {"application": "test", "state_dir": site.state}
    with Producer(site.bootstrap, site.registry, **options) as producer:
        for number, user in enumerate(USERS):
            producer.send(site.visit(user, at=AT + timedelta(minutes=number)))
    return site


def read(consumer: Consumer[Any], count: int) -> set[str]:
    """The users of the next events."""
    found = set()
    for number in range(count):
        message = consumer.poll(30.0)
        assert message is not None, f"{number} of {count} came"
        found.add(message.event.user)
    return found


def test_one_request_finds_the_places_of_all_partitions(site: Site, counting: Service) -> None:
    with Consumer(
        [site.one.Visit], group="g", bootstrap=site.bootstrap, registry=site.registry
    ) as c:
        assert read(c, len(USERS)) == set(USERS)
        before = list_offsets_requests(counting)
        c.rewind("earliest")
        assert list_offsets_requests(counting) - before == 1
        assert read(c, len(USERS)) == set(USERS)
        before = list_offsets_requests(counting)
        c.rewind("latest")
        assert list_offsets_requests(counting) - before == 1
        assert c.poll(1.0) is None
        before = list_offsets_requests(counting)
        c.rewind(AT + timedelta(minutes=20))
        assert list_offsets_requests(counting) - before == 2, (
            "a partition without later messages stays at its end"
        )
        assert read(c, 10) == set(USERS[20:])
        assert c.poll(1.0) is None
        c.rewind(BEFORE_1970)
        assert read(c, len(USERS)) == set(USERS)
