"""A warehouse in this process, and the Iceberg catalog that it publishes to."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.messages import FetchedMessage
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._iceberg.java_tables import IcebergTables
from hadoop_loader._iceberg.publisher import SnapshotPublisher
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.drop import Drop
from hadoop_loader._operations.erase import Erase, EraseCondition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._spark.errors import iceberg_error
from tests.hadoop_loader.memory import World
from tests.hadoop_loader.test_loading import DAY, V1, V2, Killed, click, killer
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


def change_everything(published: Published) -> None:
    """Load, evolve, be killed, compact, rewind, erase, and drop; the catalog shows each."""
    world = published.world

    def rows() -> list[tuple[int, str | None]]:
        return sorted((row["n"], row.get("how")) for row in read("clicks"))

    def read(table: str) -> list[dict[str, Any]]:
        location = published.location(table)
        assert location is not None
        return iceberg.pyiceberg_rows(_static_table(location))

    world.register("clicks", V1)
    for n in range(4):
        click(world, n, n % 2 * DAY)
        published.load()
    assert rows() == [(n, None) for n in range(4)]
    messages = world.log.topics["clicks"][0]
    for key in (b"2", b"9"):  # of messages that are no rows
        messages.append(FetchedMessage(0, len(messages), DAY, key, b"?"))
    click(world, 4, schema=V2, schema_id=world.register("clicks", V2))
    with pytest.raises(Killed):
        Load(published.context(on_step=killer("publishing"))).run()
    published.load()
    wanted: list[tuple[int, str | None]] = [*((n, "mouse") for n in range(4)), (4, "touch")]
    assert rows() == wanted
    Compaction(published.context(), min_small_files=2).run()
    Rewind(published.context()).run("clicks", RewindPosition.parse("earliest"))
    assert rows() == wanted
    Erase(published.context()).run(EraseCondition.parse("n = 2"))
    assert rows() == [one for one in wanted if one[0] != 2]
    published.load(now=lambda: 9000.0)  # the replaced files are removed, after their snapshots
    assert rows() == [one for one in wanted if one[0] != 2]
    (bad,) = read(QUARANTINE_TABLE)
    assert (bad["key"], bad["value"], bad["_topic_partition"]) == (b"9", b"?", 0)
    assert bad["_timestamp"].date().isoformat() == "1970-01-02"
    world.log.topics.pop("clicks")
    Drop(published.context()).run("clicks")
    assert published.location("clicks") is None


def _static_table(location: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(location)
