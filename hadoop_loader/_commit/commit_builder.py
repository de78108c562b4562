"""The builder of a commit: what an operation is going to change.

Rules: a builder starts as the commit before, with nothing new. The operation adds files, counts,
tables, and relocated partitions. A file's target follows from its partition alone. Nothing here
changes a table: a builder can be dropped, and leaves only texts in the store.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from hadoop_loader._fetch.log_identity import LogIdentity
from hadoop_loader._fetch.ranges import FetchRange
from hadoop_loader._storage.filesystem import AnyPath, sorted_glob
from hadoop_loader._storage.staging import StagedFile

# A table's statistics are set again when it has grown by so much. That costs the metastore some
# 50 ms a table, and tables of the same age grow together: a commit measures a few, the next others.
_STATISTICS_GROWTH = 1.25
_MAX_MEASURED_TABLES = 4


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
    topic_ids: dict[str, str] = field(default_factory=dict)  # all, after the commit
    cluster: str = ""  # after the commit
    retired_tables: list[str] = field(default_factory=list)  # replaced by a rebuild
    dropped_tables: list[list[str]] = field(default_factory=list)  # removed, with their views
    acknowledged: dict[str, str] = field(default_factory=dict)  # refusals, by topic
    dropped_days: dict[str, dict[str, str]] = field(default_factory=dict)  # folders, by table
    settled_tables: list[str] = field(default_factory=list)  # all rows are in the latest schema
    _relocations: list[Relocation] = field(default_factory=list)
    _layouts: dict[str, dict[str, str]] = field(default_factory=dict)  # changed or read ones

    def __post_init__(self) -> None:
        if self.last is not None:
            self.tables = dict(self.last.tables)
            self.offsets = {t: dict(ps) for t, ps in self.last.offsets.items()}
            self.topic_ids, self.cluster = dict(self.last.topic_ids), self.last.cluster
            self.acknowledged = dict(self.last.acknowledged)

    @property
    def number(self) -> int:
        """The number of the commit."""
        return (self.last.number if self.last else 0) + 1

    def advance_offsets(self, ranges: Iterable[FetchRange]) -> None:
        """Move offsets to the ends of these ranges."""
        for r in ranges:
            partitions = self.offsets.setdefault(r.topic, {})
            partitions[str(r.partition)] = max(r.end, partitions.get(str(r.partition), 0))

    def begin_lives(self, topics: Iterable[str]) -> None:
        """Forget the offsets of topics that were made again."""
        for topic in topics:
            self.offsets[topic] = {}

    def identify(self, found: LogIdentity, topics: Collection[str]) -> None:
        """Record the cluster, and the ids of `topics` and of those whose id is not known yet."""
        self.cluster = found.cluster or self.cluster
        for topic, one in found.topics.items():
            if topic in topics or (topic in self.offsets and topic not in self.topic_ids):
                self.topic_ids[topic] = one

    def drop(self, topic: str) -> None:
        """Remove a topic's table, and forget the topic's offsets."""
        for known in (self.offsets, self.topic_ids, self.acknowledged):
            known.pop(topic, None)
        self._drop_table(topic)

    def drop_days(self, table: str, days: Sequence[str]) -> None:
        """Remove partitions of a table, with their files.

        One that was rewritten gets a new folder for what comes later: its first one may be retired.
        """
        for day in days:
            self.dropped_days.setdefault(table, {})[day] = self.folder(table, day)
            if day in self._layout(table):
                self._layout(table)[day] = f"{table}/load-{self.number:08d}/datepartition={day}"

    def take_back(self, topic: str, before: Commit | None) -> None:
        """Give a topic's table the state of an earlier commit; its offsets stay."""
        table = self.tables[topic].files_table
        state = before.tables.get(topic) if before is not None else None
        if state is None:
            self._drop_table(topic)
            return
        self.tables[topic] = state
        self._layouts[table] = dict(self.log.layout(before, table))

    def _drop_table(self, topic: str) -> None:
        state = self.tables.pop(topic)
        self.drop_layout(state.files_table)
        self.dropped_tables.append([state.files_table, state.table])

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

    def count(self, topic: str, counts: TopicCommit, now_ms: int, *, removed: int = 0) -> None:
        """Set the counts of a topic, and add them to the sums of its table.

        `removed`: rows and quarantined messages that leave, although the audit counts them.
        """
        self.topics[topic] = counts
        state = self.tables[topic]
        self.tables[topic] = replace(
            state,
            rows=state.rows + counts.rows,
            files=state.files + counts.files,
            quarantined=state.quarantined + counts.quarantined,
            lost=state.lost + counts.lost,
            damaged=state.damaged + counts.damaged,
            removed=state.removed + removed,
            load=self.number,
            loaded_ms=now_ms,
        )

    def add_file_count(self, topic: str, files: int) -> None:
        """Change the number of files of a topic's table, whose rows stay the same."""
        state = self.tables[topic]
        self.tables[topic] = replace(state, files=state.files + files)

    def settle(self, topic: str, sensitive: list[list[str]]) -> None:
        """Forget the earlier schemas of a topic's table: all of its rows are in the latest one.

        `sensitive`: the sensitive paths of all of them.
        """
        state = self.tables[topic]
        if len(state.projections) > 1:
            self.tables[topic] = replace(
                state, projections=state.projections[-1:], sensitive=sensitive
            )
            self.settled_tables.append(state.files_table)

    def drop_layout(self, table: str) -> None:
        """Drop the partition folders of a table that is retired."""
        self._layouts[table] = {}

    def _measure(self) -> None:
        """Set the statistics of changed tables, and of those that have outgrown theirs the most."""
        new: dict[str, tuple[int, int]] = {}  # rows and bytes of the new files of a table
        for file in self.files:
            rows, size = new.get(file.table, (0, 0))
            new[file.table] = rows + file.rows, size + file.bytes
        measured, growths = [], {}
        for topic in self.topics:
            state = self.tables[topic]
            _, known, _ = state.statistics or (0, 0, 0)
            if not new.get(state.files_table, (0, 0))[0]:
                continue
            if state.changed_by(self.number):
                measured.append(topic)  # they are set with the columns
            elif state.rows >= known * _STATISTICS_GROWTH:
                growths[topic] = state.rows / max(known, 1)
        measured += heapq.nlargest(_MAX_MEASURED_TABLES, growths, key=growths.__getitem__)
        for topic in measured:
            state = self.tables[topic]
            rows, size = new[state.files_table]
            statistics = [self.number, state.rows, round(state.rows * size / rows)]
            self.tables[topic] = replace(state, statistics=statistics)

    def build(self, now_ms: int) -> Commit:
        """Return the commit."""
        self._measure()
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
            settled_tables=self.settled_tables,
            topic_ids=self.topic_ids,
            cluster=self.cluster,
            dropped_tables=self.dropped_tables,
            acknowledged=self.acknowledged,
            dropped_days=self.dropped_days,
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
    found = Counter((f.topic, f.table) for f in files)
    return {topic: found[topic, table] for topic, table in tables.items()}
