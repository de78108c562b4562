"""`headworks demo --bootstrap`: the whole pipeline with Apache Kafka in our broker's place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.consumer_sdk.zookeeper_group.cluster import eventually
from tests.interop import apache_kafka

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.demo, pytest.mark.timeout(600)]
LIMIT = 400


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with apache_kafka.start(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def demo(kafka: Service, folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["--bootstrap", kafka.address, "--limit", str(LIMIT), "--format", "json"]
    return subprocess.run(
        [sys.executable, "-P", "-m", "headworks._cli", "demo", *options],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        timeout=500,
        check=False,
    )


def topics(kafka: Service) -> set[str]:
    from headworks._cli.broker_address import topics_metadata

    return {name for name in topics_metadata(kafka.address) if not name.startswith("__")}


def test_the_demo_runs_and_adds_up(kafka: Service, tmp_path: Path) -> None:
    done = demo(kafka, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"broker    {kafka.address}, not the demo's own" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["broker"] == kafka.address
    assert summary["tables"]["flights"] == summary["tables"]["weather"] == LIMIT
    assert summary["rows_by_schema_version"] == {"flights": {"1": LIMIT // 2, "2": LIMIT // 2}}
    rows = sum(summary["tables"].values())
    assert summary["audit"] == {"sent": rows, "loaded": rows, "lost": 0, "duplicated": 0}
    assert summary["registry_status"] == 409
    # Kafka deletes a topic some time after it says so
    eventually("an empty Kafka: it takes away what it made", lambda: topics(kafka) == set())


def test_a_topic_that_is_there_already_is_not_touched(kafka: Service, tmp_path: Path) -> None:
    from confluent_kafka.cimpl import NewTopic

    from headworks._cli.broker_address import admin_client

    admin = admin_client(kafka.address)
    admin.create_topics([NewTopic("flights", 1, 1)])["flights"].result(60)
    done = demo(kafka, tmp_path)
    assert done.returncode == 2
    assert "already has the demo's flights" in done.stderr
    assert "headworks topic delete flights --yes" in done.stderr
    assert topics(kafka) == {"flights"}
