"""Kafka Streams counts words exactly once, though its instances are killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.interop import apache_kafka
from tests.interop.java_client import JavaClient
from tests.interop.programs import (
    PATIENCE_SECONDS,
    Feed,
    Follower,
    Program,
    create,
    kill_in_a_transaction,
    messages,
)
from tests.waiting import until

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]
_SOURCE, _TARGET, _CHANGELOG = "words", "word-counts", "word-count-counts-changelog"
_WORDS = 20
_PROGRESS = 100  # messages between two kills
_SETTINGS = (
    "commit.interval.ms=500",
    "consumer.session.timeout.ms=2000",
    "consumer.heartbeat.interval.ms=300",
    "producer.transaction.timeout.ms=3000",  # of an instance that does not come back
    "replication.factor=1",
)


def test_each_word_is_counted_once(
    java_client: JavaClient, broker: Service, tmp_path: Path
) -> None:
    create(broker.address, _SOURCE, _TARGET)
    one, other = (
        Program(
            apache_kafka.java(
                "WordCount",
                broker.address,
                _SOURCE,
                _TARGET,
                str(tmp_path / name),
                *_SETTINGS,
                classes=java_client.classes,
            ),
            tmp_path / f"{name}.log",
        )
        for name in ("one", "other")
    )

    with (
        one,
        other,
        Follower(broker.address, _TARGET, one, other) as counted,
        Feed(broker.address, _SOURCE, _WORDS) as feed,
    ):
        one.start()
        counted.wait_for(_PROGRESS)
        # and start at once: the next life fences this one
        kill_in_a_transaction(one, broker.address, _TARGET)
        one.start()
        counted.wait_for(counted.count + _PROGRESS)
        other.start()
        until(lambda: "running" in other.words(), PATIENCE_SECONDS)
        counted.wait_for(counted.count + _PROGRESS)
        one.kill()  # the other takes over, when the transaction has timed out
        counted.wait_for(counted.count + _PROGRESS)
        feed.finish()
        counted.wait_for(len(feed.sent))

    counts = defaultdict(list)
    for message in messages(broker.address, _TARGET):
        counts[message.key()].append(int(message.value() or b""))
    expected = Counter(word for word, _ in feed.sent)
    assert counts == {word: list(range(1, count + 1)) for word, count in expected.items()}
    kept = {m.key(): int.from_bytes(m.value() or b"") for m in messages(broker.address, _CHANGELOG)}
    assert kept == expected
    aborted = len(messages(broker.address, _TARGET, committed=False)) - len(feed.sent)
    assert aborted > 0, "no instance was killed inside a transaction"
