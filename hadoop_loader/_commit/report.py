"""What a load did, as frozen values: for people, for `--format json`, and beside its commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hadoop_loader._commit.commit_record import Commit

__all__ = [
    "CompactionReport",
    "LeaderlessPartitions",
    "LoadReport",
    "SkippedTopic",
    "TaskReport",
    "TopicReport",
    "report_of",
]


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic in one load; `offsets`: partition to (from, to), `to` not included."""

    topic: str
    table: str
    schema_version: int
    offsets: dict[int, tuple[int, int]]
    rows: int
    files: int
    bytes: int
    quarantined: int
    lost: int = 0


@dataclass(frozen=True, slots=True)
class SkippedTopic:
    """A topic that was left as it is, with its offsets, and why."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderlessPartitions:
    """The partitions of a topic that were left out, as no leader answered for them.

    `offsets`: where each of them stands, as before; None if nothing of it was ever loaded.
    """

    topic: str
    offsets: dict[int, int | None]
    reason: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task of a load read, of how many topics, and how long it worked at it."""

    topics: int
    messages: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction did; `number` is the commit's, 0 if there was nothing to do."""

    number: int = 0
    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.partitions} partitions: {self.files_before} files became {self.files_after}"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """One load, rewind, requeue or rebuild. `number` is the commit's.

    If there was nothing to do, it is not `committed`, and the number is the last one's.
    `unmarked`: why the marks of completeness stand where they were, if they do. `tasks`: of a load
    alone, the one that worked longest first. `compacted`: of a load that made files fewer after it.
    """

    number: int
    topics: tuple[TopicReport, ...] = ()
    ungoverned: tuple[str, ...] = ()
    refused: tuple[SkippedTopic, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    kind: str = "load"
    committed: bool = False
    leaderless: tuple[LeaderlessPartitions, ...] = ()
    unmarked: str | None = None
    tasks: tuple[TaskReport, ...] = ()
    compacted: CompactionReport | None = None

    @property
    def left_out(self) -> str | None:
        """What the load could not do, in a line; None if it did everything."""
        partitions = sum(len(one.offsets) for one in self.leaderless)
        told = (
            (len(self.refused), f"topics left as they were: {len(self.refused)}"),
            (partitions, f"partitions left out for want of a leader: {partitions}"),
            (self.unmarked, "marks of completeness stand where they were"),
        )
        return "; ".join(text for is_so, text in told if is_so) or None

    @property
    def rows(self) -> int:
        """Rows that the load brought into tables."""
        return sum(topic.rows for topic in self.topics)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "rows": self.rows}


def report_of(
    number: int,
    commit: Commit | None,
    ungoverned: Sequence[str] = (),
    refused: Sequence[SkippedTopic] = (),
    seconds: dict[str, float] | None = None,
    leaderless: Sequence[LeaderlessPartitions] = (),
    tasks: Sequence[TaskReport] = (),
) -> LoadReport:
    """The report of the work that made `commit`, or made none and left it at `number`."""
    tables = commit.tables if commit else {}
    topics = [
        TopicReport(
            topic=topic,
            table=tables[topic].table,
            schema_version=tables[topic].version,
            offsets={int(p): (a, b) for p, (a, b) in found.ranges.items()},
            rows=found.rows,
            files=found.files,
            bytes=found.bytes,
            quarantined=found.quarantined,
            lost=found.lost,
        )
        for topic, found in (commit.topics.items() if commit else ())
    ]
    return LoadReport(
        number,
        tuple(topics),
        tuple(ungoverned),
        tuple(sorted(refused, key=lambda r: r.topic)),
        seconds or {},
        commit.kind if commit else "load",
        commit is not None,
        tuple(leaderless),
        tasks=tuple(sorted(tasks, key=lambda task: -task.seconds)),
    )
