"""A consumer that is closed while a rebalance takes its partitions: its offsets are committed.

librdkafka then leaves the group before it commits, and the broker refuses the commit.
"""

from __future__ import annotations

import logging
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import TopicPartition

from consumer_sdk import Consumer, OnPoison
from headworks._server.child_process import Service
from tests.damage import produce_batches
from tests.waiting import until

pytestmark = pytest.mark.e2e


def test_a_member_that_leaves_in_a_rebalance_commits_first(
    broker: Service, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.WARNING, "headworks.consumer")
    topic = f"left-{uuid.uuid4().hex[:8]}"
    produce_batches(broker.address, topic, [b"x", b"y", b"z"])
    first: Consumer[dict[str, Any]] = Consumer(
        topics=[topic],
        group=topic,
        bootstrap=broker.address,
        registry="http://127.0.0.1:1",
        on_poison=OnPoison.SKIP,
        commit_every=600,
        state_dir=tmp_path,
        config={"heartbeat.interval.ms": 100},
    )
    until(lambda: first.poll(0.1) or first.skipped >= 3)
    first._membership._poller.stop()  # type: ignore[attr-defined]  # nothing serves a revocation
    settings = {"bootstrap.servers": broker.address, "group.id": topic}
    second = PlainConsumer(settings)
    second.subscribe([topic])
    second.poll(1.0)
    time.sleep(1.0)  # a heartbeat has told the first member of the rebalance
    first.close()
    # librdkafka may wait for ever if it is closed while it is given partitions.
    until(lambda: second.poll(0.1) is None and second.assignment())
    second.close()
    with_offsets = PlainConsumer(settings)
    [place] = with_offsets.committed([TopicPartition(topic, 0)], 60)
    with_offsets.close()
    assert place.offset == 3
    assert not [r.getMessage() for r in caplog.records if "not committed" in r.getMessage()]
