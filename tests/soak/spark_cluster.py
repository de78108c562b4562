"""The loader on a Spark cluster of two workers, with a metastore of its own process, on loopback.

Everything comes from the jars in PySpark's wheel. One worker is killed while the load runs: Spark
runs its tasks again, and every message is in the table once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Producer

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.memory import encoded
from tests.hadoop_loader.test_loading import V1
from tests.soak.hive import java, metastore, wait_for

_LIMIT = 600.0
_MESSAGES = 20_000
_SPARK = "org.apache.spark.deploy"


@dataclass
class Report:
    """What was seen; `wrong` must be empty."""

    steps: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.steps, *self.wrong])


def prove(folder: Path, seed: int) -> Report:
    """Load, kill a worker in the middle of a load, compact, and ask over HiveServer2."""
    report, rng = Report(), Random(seed)
    with ExitStack() as stack:
        broker_data, store = str(folder / "broker"), f"sqlite:///{folder / 'registry.db'}"
        broker = stack.enter_context(
            child_process.start(
                ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", broker_data]
            )
        )
        registry = stack.enter_context(
            child_process.start(["registry", "start", "--listen", "127.0.0.1:0", "--store", store])
        )
        address = stack.enter_context(metastore(folder))
        master, workers = stack.enter_context(_cluster(folder))
        settings = {
            "HEADWORKS_BOOTSTRAP": broker.address,
            "HEADWORKS_REGISTRY": registry.url,
            "HEADWORKS_DATA_DIR": str(folder / "data"),
            "HEADWORKS_SPARK_MASTER": master,
            "HEADWORKS_METASTORE": address,
        }
        schema_id = RegistryClient(registry.url).register("clicks-value", json.dumps(V1)).id
        for kill in (False, True):
            _produce(broker.address, schema_id, kill * _MESSAGES)
            run = _start(settings, "load", "run")
            if kill:
                time.sleep(rng.uniform(5, 20))
                workers[0].kill()
            _take(report, run, f"load, {'with one worker killed' if kill else 'with two workers'}")
        _take(report, _start(settings, "load", "compact"), "compact")
        question = (
            "SELECT count(*) AS n, count(DISTINCT _partition, _offset) AS d, sum(n) AS s "
            "FROM clicks"
        )
        answer = _take(report, _start(settings, "sql", question, "--format", "json"), "sql")
        total = 2 * _MESSAGES
        wanted = [{"n": total, "d": total, "s": total * (total - 1) // 2}]
        if not answer or json.loads(answer) != wanted:
            report.wrong.append(f"{answer} was answered, and {wanted} was expected")
    return report


def _produce(bootstrap: str, schema_id: int, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(first, first + _MESSAGES):
        value = encoded(V1, {"at": n * 1000, "n": n}, schema_id)
        producer.produce("clicks", value, key=str(n), timestamp=n * 1000)
        producer.poll(0)
    producer.flush()


def _start(settings: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "headworks._cli", *arguments],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _take(report: Report, run: subprocess.Popen[str], what: str) -> str:
    out, error = run.communicate(timeout=_LIMIT)
    report.steps.append(f"{what}: exit {run.returncode}; {error.strip().splitlines()[-1:]}")
    if run.returncode != 0:
        report.wrong.append(f"{what} failed: {error[-2000:]}")
    return out


@contextmanager
def _cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a master, and its two workers of one core each."""
    port = free_ports(1)[0]
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        master = (f"{_SPARK}.master.Master", *here, "--port", str(port))
        stack.enter_context(java(folder, "master", "", *master))
        wait_for(port)
        worker = (f"{_SPARK}.worker.Worker", *here, "-c", "1", "-m", "1g", address)
        yield (
            address,
            [stack.enter_context(java(folder, f"worker-{i}", "", *worker)) for i in (1, 2)],
        )
