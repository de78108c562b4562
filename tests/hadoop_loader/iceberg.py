"""An Iceberg catalog in memory, for loaders that are killed: each change happens whole, or not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.parquet as pq

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.table_failures import table_error
from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._iceberg.publisher import SnapshotPublisher
from hadoop_loader._iceberg.table_change import COMMIT_PROPERTY, PublishedTable, TableChange
from headworks.errors import UnreachableError
from tests.hadoop_loader.memory import World


@dataclass
class MemorySnapshot:
    """A snapshot of a table."""

    files: frozenset[str]
    summary: dict[str, str]
    operation: str

    @property
    def number(self) -> int:
        return int(self.summary.get("headworks.load", 0))

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for uri in sorted(self.files):
            found += pq.ParquetFile(Path(uri.removeprefix("file://"))).read().to_pylist()
        return found


@dataclass
class MemoryTables:
    """A catalog that outlives loaders."""

    world: World
    tables: dict[str, list[MemorySnapshot]] = field(default_factory=dict)
    declared: dict[str, dict[int, Any]] = field(default_factory=dict)
    down: bool = False
    creates_defaults: bool = True
    _one_change: Lock = field(default_factory=Lock)  # tables are published by several threads

    def exists(self, table: str) -> bool:
        self._answer()
        return table in self.tables

    def find(self, table: str) -> PublishedTable | None:
        self._answer()
        if table not in self.tables:
            return None
        own = self.tables[table][-1].summary.get(COMMIT_PROPERTY, "")
        return PublishedTable(own, self.declared[table], self.creates_defaults)

    def drop(self, table: str) -> None:
        self._answer()
        self.tables.pop(table, None)
        self.declared.pop(table, None)

    def change(self, change: TableChange) -> None:
        from hadoop_loader._iceberg.java_tables import declared_defaults

        self._answer()
        with self._one_change:
            snapshots = self.tables.setdefault(change.table, [])
            before = snapshots[-1].files if snapshots else frozenset()
            added = {file.uri for file in change.added}
            left = {
                uri for uri in before if not uri.startswith(tuple(f"{f}/" for f in change.removed))
            }
            after = added if change.all_files else left | added
            assert change.all_files or not added & before
            operation = change.operation if before - after else "append"
            made = MemorySnapshot(frozenset(after), dict(change.summary), operation)
            self.declared[change.table] = declared_defaults(change.schema.fields)
            snapshots.append(made)
            self.check()

    def expire(self, table: str, number: int) -> bool:
        self._answer()
        found = self.tables.get(table, [])
        if found and found[-1].number < number:
            return False
        found[:-1] = [one for one in found[:-1] if one.number >= number]
        return True

    def check(self) -> None:
        """Every snapshot that is not expired can be read."""
        for name, snapshots in self.tables.items():
            for one in snapshots:
                for uri in one.files:
                    assert Path(uri.removeprefix("file://")).exists(), (name, one.summary)

    def _answer(self) -> None:
        if self.down:
            raise UnreachableError("the catalog does not answer", fix="start it")


def publishing(world: World, tables: MemoryTables, **changes: Any) -> LoaderContext:
    """A loader's parts, with a publisher as a new process would have it."""
    context = world.context(**changes)
    state = world.root / "_headworks"
    log = CommitLog(state)
    publisher = SnapshotPublisher(
        "memory", lambda: tables, log, world.root, state, context.on_step, table_error
    )
    return replace(context, log=log, snapshots=publisher)
