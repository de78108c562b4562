"""The builder of a commit: what an operation is going to change.

Rules: a builder starts as the commit before, with nothing new. The operation adds files, counts,
tables, and relocated partitions. A file's target follows from its partition alone. Nothing here
changes a table: a builder can be dropped, and leaves only texts in the store.
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
from hadoop_loader._fetch.ranges import FetchRange
from hadoop_loader._storage.filesystem import AnyPath, sorted_glob
from hadoop_loader._storage.staging import StagedFile

__all__ = ["CommitBuilder", "default_partition_folder"]


def default_partition_folder(table: str, day: str) -> str:
    """Return where a partition's files are until a relocation."""
    return f"{table}/datepartition={day}"


@dataclass(slots=True)
class CommitBuilder:
    """The next commit, while it is built; see the module."""

    log: CommitLog
    root: AnyPath  # the folder of the warehouse
    last: Commit | None  # the commit before
    kind: str = "load"  # the operation
    files: list[StagedFile] = field(default_factory=list)  # new files, in staging
    topics: dict[str, TopicCommit] = field(default_factory=dict)  # changes, by topic
    tables: dict[str, TableState] = field(default_factory=dict)  # states after the commit
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)  # all, after the commit
    retired_tables: list[str] = field(default_factory=list)  # replaced by a rebuild
    _relocations: list[Relocation] = field(default_factory=list)
    _layouts: dict[str, dict[str, str]] = field(default_factory=dict)  # changed or read ones

    def __post_init__(self) -> None:
        if self.last is not None:
            self.tables = dict(self.last.tables)
            self.offsets = {t: dict(ps) for t, ps in self.last.offsets.items()}

    @property
    def number(self) -> int:
        """The number of the commit."""
        return (self.last.number if self.last else 0) + 1

    def advance_offsets(self, ranges: Iterable[FetchRange]) -> None:
        """Move offsets to the ends of these ranges."""
        for r in ranges:
            partitions = self.offsets.setdefault(r.topic, {})
            partitions[str(r.partition)] = max(r.end, partitions.get(str(r.partition), 0))

    def folder(self, table: str, day: str) -> str:
        """Return the folder of a partition, relative to the warehouse."""
        return self._layout(table).get(day) or default_partition_folder(table, day)

    def relocate(self, table: str, day: str) -> None:
        """Give a partition a new folder, which holds only the files of this commit."""
        retired = self.folder(table, day)
        if any((moved.table, moved.day) == (table, day) for moved in self._relocations):
            return
        folder = f"{table}/load-{self.number:08d}/datepartition={day}"
        self._layout(table)[day] = folder
        self._relocations.append(Relocation(table, day, folder, retired))

    def days(self, table: str) -> list[str]:
        """Return every partition of a table, by its folders."""
        found = (self.root / table).glob("datepartition=*")
        return sorted({path.name.partition("=")[2] for path in found} | self._layout(table).keys())

    def sources(self, table: str, day: str) -> list[AnyPath]:
        """Return the files of a partition as it is before this commit."""
        moved = {(r.table, r.day): r.retired for r in self._relocations}
        folder = self.root / moved.get((table, day), self.folder(table, day))
        return sorted_glob(folder, "[!._]*.parquet")

    def count(self, topic: str, counts: TopicCommit, now_ms: int) -> None:
        """Set the counts of a topic, and add them to the sums of its table."""
        self.topics[topic] = counts
        state = self.tables[topic]
        self.tables[topic] = replace(
            state,
            rows=state.rows + counts.rows,
            files=state.files + counts.files,
            quarantined=state.quarantined + counts.quarantined,
            lost=state.lost + counts.lost,
            load=self.number,
            loaded_ms=now_ms,
        )

    def add_file_count(self, topic: str, files: int) -> None:
        """Change the number of files of a topic's table, whose rows stay the same."""
        state = self.tables[topic]
        self.tables[topic] = replace(state, files=state.files + files)

    def drop_layout(self, table: str) -> None:
        """Drop the partition folders of a table that is retired."""
        self._layouts[table] = {}

    def build(self, now_ms: int) -> Commit:
        """Return the commit."""
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
            relocations=self._relocations,
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
    """Count the files that each topic adds to its own table; `tables`: topic to files table."""
    return {t: sum(f.topic == t and f.table == table for f in files) for t, table in tables.items()}
