"""The topics that the demo creates on another broker, and removes."""

from __future__ import annotations

import pytest

from headworks._audit_counting import AUDIT_TOPIC
from headworks._cli.broker_address import admin_client, topics_metadata
from headworks._cli.demo.shared_broker import make_audit_topic, temporary_topics
from headworks._server.child_process import Service
from headworks.errors import RefusedError, UnreachableError, UsageError

pytestmark = pytest.mark.e2e

NAMES = ("borrowed-a", "borrowed-b")


def there(broker: Service) -> set[str]:
    return topics_metadata(broker.address).keys() & {*NAMES, "no/name"}


def test_topics_are_made_with_four_partitions_and_taken_away(broker: Service) -> None:
    with temporary_topics(broker.address, NAMES):
        made = topics_metadata(broker.address)
        assert [len(made[name].partitions) for name in NAMES] == [4, 4]
    assert there(broker) == set()


def test_they_are_taken_away_however_it_ends(broker: Service) -> None:
    with pytest.raises(KeyboardInterrupt), temporary_topics(broker.address, NAMES):
        raise KeyboardInterrupt
    assert there(broker) == set()


def test_what_is_there_is_somebody_elses(broker: Service) -> None:
    from confluent_kafka.cimpl import NewTopic

    admin = admin_client(broker.address)
    admin.create_topics([NewTopic(NAMES[1], 1, 1)])[NAMES[1]].result(60)
    with pytest.raises(UsageError, match=NAMES[1]), temporary_topics(broker.address, NAMES):
        pass
    assert there(broker) == {NAMES[1]}
    admin.delete_topics([NAMES[1]])[NAMES[1]].result(60)


def test_a_broker_that_makes_only_some_keeps_none(broker: Service) -> None:
    with (
        pytest.raises(RefusedError, match="no/name"),
        temporary_topics(broker.address, (NAMES[0], "no/name")),
    ):
        pass
    assert there(broker) == set()


def test_the_topic_of_the_audit_is_made_and_stays(broker: Service) -> None:
    for _ in range(2):
        make_audit_topic(broker.address)
        assert AUDIT_TOPIC in topics_metadata(broker.address)


def test_nobody_there() -> None:
    with pytest.raises(UnreachableError), temporary_topics("127.0.0.1:1", NAMES):
        pass
