"""A commit as it is put together: what a load, a rewind or a compaction is going to change.

Rules: begins as the commit before it with nothing new; whoever makes it adds files, counts, tables
and partitions that move; where a file belongs follows from the partitions alone. Nothing here
touches a table: a draft is thrown away without a trace, but for texts kept by their fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import (
    Commit,
    CommitFile,
    Relocation,
    TableState,
    TopicCommit,
    checksum,
)
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.ranges import Range
from hadoop_loader._storage.filesystem import AnyPath, sorted_glob
from hadoop_loader._storage.staging import StagedFile

__all__ = ["CommitBuilder", "default_partition_folder"]


def default_partition_folder(table: str, day: str) -> str:
    """Where a partition's files are until something is put in its place."""
    return f"{table}/datepartition={day}"


@dataclass(slots=True)
class CommitBuilder:
    """See the module; `root` is the warehouse's folder."""

    log: CommitLog
    root: AnyPath
    last: Commit | None
    kind: str = "load"
    files: list[StagedFile] = field(default_factory=list)
    topics: dict[str, TopicCommit] = field(default_factory=dict)
    tables: dict[str, TableState] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    retired_tables: list[str] = field(default_factory=list)
    _moved: list[Relocation] = field(default_factory=list)
    _layouts: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.last is not None:
            self.tables = dict(self.last.tables)
            self.offsets = {t: dict(ps) for t, ps in self.last.offsets.items()}

    @property
    def number(self) -> int:
        """The number that the commit will have."""
        return (self.last.number if self.last else 0) + 1

    def advance_offsets(self, ranges: Iterable[Range]) -> None:
        """Offsets go on behind these ranges."""
        for r in ranges:
            partitions = self.offsets.setdefault(r.topic, {})
            partitions[str(r.partition)] = max(r.end, partitions.get(str(r.partition), 0))

    def folder(self, table: str, day: str) -> str:
        """The folder of a partition, under the warehouse."""
        return self._layout(table).get(day) or default_partition_folder(table, day)

    def relocate(self, table: str, day: str) -> None:
        """The partition gets a new folder, empty but for what this commit puts in."""
        retired = self.folder(table, day)
        if any((moved.table, moved.day) == (table, day) for moved in self._moved):
            return
        folder = f"{table}/load-{self.number:08d}/datepartition={day}"
        self._layout(table)[day] = folder
        self._moved.append(Relocation(table, day, folder, retired))

    def days(self, table: str) -> list[str]:
        """Every partition of a table, by its folders."""
        found = (self.root / table).glob("datepartition=*")
        return sorted({path.name.partition("=")[2] for path in found} | self._layout(table).keys())

    def sources(self, table: str, day: str) -> list[AnyPath]:
        """The files of a partition, as it is before this commit."""
        moved = {(r.table, r.day): r.retired for r in self._moved}
        folder = self.root / moved.get((table, day), self.folder(table, day))
        return sorted_glob(folder, "[!._]*.parquet")

    def count(self, topic: str, found: TopicCommit, now_ms: int) -> None:
        """Take in what was found in a topic, and add it to the sums of its table."""
        self.topics[topic] = found
        state = self.tables[topic]
        self.tables[topic] = replace(
            state,
            rows=state.rows + found.rows,
            files=state.files + found.files,
            quarantined=state.quarantined + found.quarantined,
            lost=state.lost + found.lost,
            load=self.number,
            loaded_ms=now_ms,
        )

    def add_file_count(self, topic: str, files: int) -> None:
        """A topic's table has so many files more (or less) without having other rows."""
        state = self.tables[topic]
        self.tables[topic] = replace(state, files=state.files + files)

    def drop_layout(self, table: str) -> None:
        """The table is retired, its partitions' folders with it."""
        self._layouts[table] = {}

    def build(self, now_ms: int) -> Commit:
        """The commit."""
        layouts = dict(self.last.layouts) if self.last else {}
        for table, folders in self._layouts.items():
            if folders:
                layouts[table] = self.log.store_layout(folders)
            else:
                layouts.pop(table, None)
        return Commit(
            number=self.number,
            created_ms=now_ms,
            previous=checksum(self.last),
            offsets=self.offsets,
            tables=self.tables,
            topics=self.topics,
            files=[self._file(file) for file in self.files],
            quarantine=any(file.table == QUARANTINE_TABLE for file in self.files),
            kind=self.kind,
            layouts=layouts,
            relocations=self._moved,
            retired_tables=self.retired_tables,
        )

    def _layout(self, table: str) -> dict[str, str]:
        if table not in self._layouts:
            self._layouts[table] = dict(self.log.layout(self.last, table))
        return self._layouts[table]

    def _file(self, f: StagedFile) -> CommitFile:
        return CommitFile(
            staged=f.path.removeprefix(f"{self.root}/"),
            target=f"{self.folder(f.table, f.day)}/{f.name}",
            table=f.table,
            day=f.day,
            rows=f.rows,
            bytes=f.bytes,
        )


def count_files_by_topic(files: Sequence[StagedFile], tables: Mapping[str, str]) -> dict[str, int]:
    """How many files of its own table each topic gets; `tables`: topic to table over files."""
    return {t: sum(f.topic == t and f.table == table for f in files) for t, table in tables.items()}
