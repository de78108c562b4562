"""A warehouse in this process, and the Iceberg catalog that it publishes to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._iceberg.java_tables import IcebergTables
from hadoop_loader._iceberg.publisher import SnapshotPublisher
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._spark.errors import iceberg_error
from tests.hadoop_loader.memory import World
from tests.interop import iceberg


class Published:
    """Loaders of one warehouse, each as a new process would be."""

    def __init__(self, session: Any, folder: Path, url: str) -> None:
        self.world = World(folder / "ware house%20")
        self.url = url
        self._session = session

    def context(self, **changes: Any) -> LoaderContext:
        context = self.world.context(**changes)
        state, root = self.world.root / "_headworks", self.world.root
        publisher = SnapshotPublisher(
            self.url,
            self._tables,
            log := CommitLog(state),
            root,
            state,
            context.on_step,
            iceberg_error,
        )
        return replace(context, log=log, snapshots=publisher)

    def load(self, **changes: Any) -> None:
        """Load, and rewrite what Iceberg cannot show."""
        context = self.context(**changes)
        assert not Load(context).run().refused
        assert context.snapshots is not None
        for topic in sorted(context.snapshots.outdated):
            Compaction(context, every=True).run(topic)
        assert not context.snapshots.problems

    def location(self, table: str) -> str | None:
        """The newest metadata of a table, as the catalog has it."""
        tables = self._tables()
        name = tables._name(table)
        if not tables._catalog.tableExists(name):
            return None
        found = tables._catalog.loadTable(name).operations().current()
        return str(found.metadataFileLocation())

    def _tables(self) -> IcebergTables:
        location = f"file://{self.world.root}/_iceberg"
        return IcebergTables(self._session, self.url, iceberg.NAMESPACE, location)
