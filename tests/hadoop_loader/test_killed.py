"""The loader as a process, killed for real, against the real broker and registry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from hadoop_loader import Warehouse, WarehouseConfig
from headworks._audit.reader import read_ledger
from headworks._server import child_process
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.memory import encoded
from tests.hadoop_loader.test_loading import HOUR, V1, V2

pytestmark = pytest.mark.e2e


@dataclass
class Stack:
    folder: Path
    broker: child_process.Service
    registry: child_process.Service

    def headworks(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        process = self.begin(*arguments, **env)
        try:
            out, err = process.communicate(timeout=400)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def begin(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "headworks._cli", *arguments, "--format", "json"],
            env={
                **os.environ,
                "HEADWORKS_BOOTSTRAP": self.broker.address,
                "HEADWORKS_REGISTRY": self.registry.url,
                "HEADWORKS_DATA_DIR": str(self.folder / "data"),
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def load_without_spark(self, **env: str) -> subprocess.CompletedProcess[str]:
        """A loader as a process, on this warehouse, that needs no JVM until views are defined."""
        root = str(self.folder / "data" / "warehouse")
        command = ["tests.soak.fire_loader", self.broker.address, self.registry.url, root, "--once"]
        return subprocess.run(
            [sys.executable, "-m", *command],
            env={**os.environ, **env},
            cwd=Path(__file__).parent.parent.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )

    def produce(self, schema: Any, schema_id: int, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self.broker.address})
        for n in numbers:
            value = {"at": n * HOUR, "n": n, **({"how": "touch"} if schema is V2 else {})}
            data = encoded(schema, value, schema_id)
            producer.produce("clicks", data, key=str(n), timestamp=n * HOUR)
        producer.flush()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    with (
        child_process.start(
            ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "broker")]
        ) as broker,
        child_process.start(
            ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
        ) as registry,
    ):
        yield Stack(tmp_path, broker, registry)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_killed_twice_and_nothing_is_lost_or_doubled(stack: Stack, spark: Any, hive: str) -> None:
    client = RegistryClient(stack.registry.url)
    first = client.register("clicks-value", json.dumps(V1))
    stack.produce(V1, first.id, range(100))
    killed = stack.load_without_spark(HEADWORKS_CRASH_AT="renaming:3")
    assert killed.returncode == -9, killed.stderr
    second = client.register("clicks-value", json.dumps(V2))
    stack.produce(V2, second.id, range(100, 150))
    killed = stack.headworks("load", "run", HEADWORKS_CRASH_AT="views:2")
    assert killed.returncode == -9, killed.stderr
    # The last run has another metastore too, and defines in it what the commit log knows.
    config = WarehouseConfig(
        data_dir=stack.folder / "data",
        bootstrap=stack.broker.address,
        registry=stack.registry.url,
        database="killed",
    )
    with Warehouse.open(config, spark=spark) as warehouse:
        warehouse.load()
        report = warehouse.load()
    assert not report.refused
    counted = stack.headworks(
        "sql",
        "SELECT how, count(*) AS rows, count(DISTINCT _partition, _offset) AS messages, "
        "sum(n) AS total FROM clicks GROUP BY how ORDER BY how",
        "--hive",
        hive,
        "--database",
        "killed",
    )
    assert counted.returncode == 0, counted.stderr
    assert json.loads(counted.stdout) == [
        {"how": "mouse", "rows": 100, "messages": 100, "total": sum(range(100))},
        {"how": "touch", "rows": 50, "messages": 50, "total": sum(range(100, 150))},
    ]
    status = json.loads(stack.headworks("load", "status").stdout)
    clicks = next(t for t in status["topics"] if t["topic"] == "clicks")
    assert (status["applied"], clicks["rows"], clicks["schema_version"]) == (True, 150, 2)
    assert sum(clicks["offsets"].values()) == 150
    ledger = read_ledger(stack.broker.address, stack.registry.url)
    assert sum(balance.accounted for balance in ledger.balances("hadoop", "clicks")) == 150


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--every", "soon", "is not a duration"),
        ("--metrics", "soon", "--metrics 'soon' is not HOST:PORT"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_spark_starts(
    option: str, value: str, words: str
) -> None:
    run = subprocess.run(
        [sys.executable, "-P", "-m", "headworks._cli", "load", "run", option, value],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert words in run.stderr
