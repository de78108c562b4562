"""The loader under fire, without Spark: everything of a load but the metastore and the executors.

`python -m tests.soak.fire_loader BOOTSTRAP REGISTRY ROOT [--once]`: load again and again, or until
nothing is new.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.registry_subjects import RegistrySubjects
from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._operations.audit_counts import CommitCountsPublisher
from hadoop_loader._operations.load import Load
from hadoop_loader._tasks.load_task import LoadTask, TaskManifest, run_load_task
from headworks._kafka.client_properties import client_properties
from headworks.errors import HeadworksError
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.memory import MemoryCatalog, MemoryJobs, MemoryLog
from tests.soak.process import PATIENCE


class _Jobs(MemoryJobs):
    """A load's jobs in this process, from a real broker."""

    def __init__(self, client: dict[str, Any]) -> None:
        super().__init__(MemoryLog())
        self._client = client

    def load(self, tasks: Sequence[LoadTask]) -> list[TaskManifest]:
        with BrokerFetcher(self._client) as fetcher:
            return [run_load_task(task, fetcher) for task in tasks]


def loader_context(bootstrap: str, registry: str, root: Path) -> LoaderContext:
    client = client_properties(bootstrap)
    versions = RegistryClient(registry)

    return LoaderContext(
        root=root,
        log=CommitLog(root / "_headworks"),
        broker=KafkaLog(client),
        versions=RegistrySubjects(versions).versions,
        jobs=_Jobs(client),
        catalog=MemoryCatalog(),
        publish=CommitCountsPublisher(client, versions, str(root)),
        tasks=2,
        policy=Policy(skip_lost=True),
    )


def main() -> int:
    bootstrap, registry, root, *more = sys.argv[1:]
    folder = Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            report = Load(loader_context(bootstrap, registry, folder)).run()
        except HeadworksError as error:
            sys.stderr.write(f"{error}\n")
            if more and time.monotonic() > deadline:
                return 1
            time.sleep(0.2)
            continue
        if more and not report.topics:
            return 0
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
