"""A member that its group removed, and a commit that was refused: both are logged."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from consumer_sdk import Consumer, OnPoison, Partition
from consumer_sdk._group_trouble import GroupTrouble
from headworks._server import child_process
from headworks._server.child_process import Service
from tests.damage import produce_batches
from tests.waiting import until

pytestmark = pytest.mark.e2e

CONFIG = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 100, "max.poll.interval.ms": 60_000}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "headworks.consumer"]


def reading(broker: Service, **config: Any) -> Consumer[dict[str, Any]]:
    return Consumer(
        topics=["removed"],
        group="removed",
        bootstrap=broker.address,
        registry="http://127.0.0.1:1",
        on_poison=OnPoison.SKIP,
        commit_every=0.1,
        config=config,
    )


def test_a_member_that_was_removed_says_so_and_reads_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headworks.consumer")
    arguments = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with child_process.start(arguments) as broker:
        produce_batches(broker.address, "removed", [b"x"])
        with reading(broker, **CONFIG) as consumer:
            until(lambda: consumer.poll(0.1) or consumer.skipped)
            broker.process.send_signal(signal.SIGSTOP)
            try:
                until(
                    lambda: consumer.poll(0.1) or any("removed" in each for each in lines(caplog))
                )
            finally:
                broker.process.send_signal(signal.SIGCONT)
            [told] = [each for each in lines(caplog) if "removed this member" in each]
            assert "the group 'removed'" in told
            assert "removed/0" in told
            assert "raise it in `config`" in told
            assert "session.timeout.ms (1000)" in told
            produce_batches(broker.address, "removed", [b"y"])
            until(lambda: consumer.poll(0.1) or consumer.skipped >= 2)
            # A busy machine may be silent for its second, and is removed once more.
            until(lambda: consumer.poll(0.1) or consumer.assignment == [Partition("removed", 0)])


def test_commits_are_told_to_the_user_s_own_callback(tmp_path: Path) -> None:
    seen: list[Any] = []
    arguments = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with child_process.start(arguments) as broker:
        produce_batches(broker.address, "removed", [b"x"])
        with reading(broker, on_commit=lambda *given: seen.append(given)) as consumer:
            until(lambda: consumer.poll(0.1) or seen)
    error, [place] = seen[0]
    assert error is None
    assert (place.topic, place.partition, place.offset) == ("removed", 0, 1)


@pytest.mark.parametrize(
    ("of_all", "of_one", "is_logged"),
    [
        (None, None, False),
        (KafkaError._NO_OFFSET, None, False),
        (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.REBALANCE_IN_PROGRESS, False),
        (KafkaError.UNKNOWN_MEMBER_ID, None, True),
        (None, KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
    ],
)
def test_a_commit_that_was_refused_is_logged_once_a_minute(
    of_all: int | None, of_one: int | None, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Place(TopicPartition):
        error = None if of_one is None else KafkaError(of_one)

    trouble = GroupTrouble({"group.id": "billing"})
    for _ in range(3):
        error = None if of_all is None else KafkaError(of_all)
        trouble.committed(error, [Place("orders", number, 7) for number in range(7)])
    told = lines(caplog)
    assert len(told) == is_logged
    for line in told:
        assert "orders/0, orders/1, orders/2, orders/3, orders/4, and 2 more" in line
        assert "'billing'" in line


def test_a_refused_commit_of_what_is_committed_is_no_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trouble, unknown = (
        GroupTrouble({"group.id": "billing"}),
        KafkaError(KafkaError.UNKNOWN_MEMBER_ID),
    )
    trouble.committed(None, [TopicPartition("orders", 0, 7)])
    trouble.committed(unknown, [TopicPartition("orders", 0, 7), TopicPartition("orders", 1)])
    assert not lines(caplog)
    trouble.committed(unknown, [TopicPartition("orders", 0, 8)])
    assert len(lines(caplog)) == 1
