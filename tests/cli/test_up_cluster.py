"""`headworks up --zookeeper embedded`: a cluster of one to play with, that others can join."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headworks._audit_counting import AUDIT_TOPIC
from headworks._server import child_process
from tests.consumer_sdk.zookeeper_group.cluster import eventually

pytestmark = pytest.mark.e2e


@contextmanager
def up(folder: Path) -> Iterator[dict[str, str]]:
    """The stack, and what it tells."""
    command = [sys.executable, "-m", "headworks._cli", "up", "--data-dir", str(folder)]
    for one in ("--broker", "--registry", "--console"):
        command += [one, "127.0.0.1:0"]
    command += ["--zookeeper", "embedded", "--format", "json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as running:
        try:
            assert running.stdout is not None
            told = ""
            while not told.endswith("}\n") and (line := running.stdout.readline()):
                told += line
            yield json.loads(told)
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait(120) == 0


def test_another_broker_joins_the_cluster_of_up(tmp_path: Path) -> None:
    with up(tmp_path / "one") as told:
        zookeeper = ["--zookeeper", told["zookeeper"], "--broker-id", "2"]
        listen = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "two")]
        with child_process.start(["broker", "start", *listen, *zookeeper]) as second:
            from confluent_kafka.admin import AdminClient
            from confluent_kafka.cimpl import NewTopic

            admin = AdminClient({"bootstrap.servers": second.address})

            def knows_both() -> bool:
                brokers = admin.list_topics(timeout=60).brokers.values()
                both = {told["broker"], second.address}
                return {f"{b.host}:{b.port}" for b in brokers} == both

            eventually("what the second knows", knows_both)
            audit = NewTopic(AUDIT_TOPIC, 2, replica_assignment=[[1], [2]])
            admin.create_topics([audit])[AUDIT_TOPIC].result(60)
    with up(tmp_path / "one") as told:  # a part of the audit's topic is away
        assert told["audit"]
