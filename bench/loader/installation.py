"""A broker, a registry, and a warehouse over them, started as users start them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hadoop_loader import Warehouse, WarehouseConfig
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.report import LoadReport
from hadoop_loader._fetch.kafka_log import KafkaLog
from headworks._kafka.client_properties import client_properties
from headworks._server import child_process

VIEWS = "views"  # the name of the topics of page views begins so


@dataclass(frozen=True, slots=True)
class Stack:
    """A broker and a registry that run."""

    broker: str
    registry: str

    def ends(self, topic: str) -> list[int]:
        """The end of each partition of a topic."""
        log = KafkaLog(client_properties(self.broker))
        marks = log.watermarks({topic: log.partitions()[topic]})[topic]
        return [marks[partition].high for partition in sorted(marks)]


@contextmanager
def start_stack(folder: Path) -> Iterator[Stack]:
    """Start a broker and a registry with their data in `folder`; stop them at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    registry = ["registry", "start", "--listen", "127.0.0.1:0"]
    broker = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "log")]
    with (
        child_process.start(
            [*registry, "--store", f"sqlite:///{folder / 'registry.db'}"]
        ) as schemas,
        child_process.start(broker) as log,
    ):
        yield Stack(log.address, schemas.address)


@contextmanager
def open_warehouse(
    stack: Stack, folder: Path, master: str, *, iceberg: str | None = None
) -> Iterator[Warehouse]:
    """Open a warehouse in `folder` that compacts nothing by itself.

    `iceberg`: the URL of the catalog that every commit is published to.
    """
    config = WarehouseConfig(
        data_dir=folder / "warehouse",
        bootstrap=stack.broker,
        registry=f"http://{stack.registry}",
        master=master,
        iceberg=iceberg,
        # A load of many rows in one topic would be found worth it, one in many topics would not.
        policy=Policy(compact=False),
    )
    with Warehouse.open(config) as warehouse:
        yield warehouse


def timed_load(warehouse: Warehouse) -> tuple[LoadReport, float]:
    """Load, and return the report and the seconds that it took."""
    began = time.perf_counter()
    report = warehouse.load()
    return report, time.perf_counter() - began


def rows_of_views(report: LoadReport) -> int:
    """Rows without those of the audit topic, which every load fills for the next one."""
    return sum(topic.rows for topic in report.topics if topic.topic.startswith(VIEWS))
