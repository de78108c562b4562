"""A consumer that closes just as its group gives it partitions: it ends, and reports none."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from consumer_sdk import Consumer, Partition
from headworks._server.child_process import Service
from tests.soak import slow_handlers
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e


def test_no_member_waits_for_ever(broker: Service) -> None:
    slow_handlers.create(broker.address, "closing", 2)
    program = [sys.executable, "-m", "tests.pipeline.closing_members", broker.address, "closing"]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "57\n"), done.stderr


def test_partitions_that_come_too_late_are_not_reported(broker: Service, registry: Service) -> None:
    topic = "closed-before-given"
    slow_handlers.create(broker.address, topic, 2)
    seen: list[tuple[str, list[Partition]]] = []
    consumer: Consumer[dict[str, Any]] = Consumer(
        topics=[topic],
        group=topic,
        bootstrap=broker.address,
        registry=registry.url,
        on_assigned=lambda partitions: seen.append(("gained", partitions)),
        on_revoked=lambda partitions: seen.append(("lost", partitions)),
    )
    consumer._membership._poller.stop()  # type: ignore[attr-defined]  # nothing serves the group
    admin = AdminClient({"bootstrap.servers": broker.address})

    def is_given() -> bool:
        found = admin.describe_consumer_groups([topic])[topic].result(60)
        return bool(found.state == ConsumerGroupState.STABLE)

    until(is_given)
    consumer.close()
    assert seen == []
