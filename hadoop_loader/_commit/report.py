"""The reports of operations, as frozen values: for people, as JSON, and beside each commit."""

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
    """One topic in one operation."""

    topic: str
    table: str
    schema_version: int
    offsets: dict[int, tuple[int, int]]  # partition to (first, end), end excluded
    rows: int
    files: int
    bytes: int
    quarantined: int
    lost: int = 0


@dataclass(frozen=True, slots=True)
class SkippedTopic:
    """A topic that was not loaded, and why; its offsets stay."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderlessPartitions:
    """The partitions of a topic that were not loaded, because they had no leader."""

    topic: str
    offsets: dict[int, int | None]  # the next one to load; None if nothing was ever loaded
    reason: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The messages that one task of a load read, and its time."""

    topics: int
    messages: int
    bytes: int
    seconds: float  # of work, without waiting for an executor


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The result of a compaction."""

    number: int = 0  # of its commit; 0: there was nothing to do
    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.partitions} partitions: {self.files_before} files became {self.files_after}"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """One load, rewind, requeue, or rebuild."""

    number: int  # of its commit, or of the last one if nothing was committed
    topics: tuple[TopicReport, ...] = ()
    ungoverned: tuple[str, ...] = ()  # topics without a schema
    refused: tuple[SkippedTopic, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)  # by phase
    kind: str = "load"  # the operation
    committed: bool = False
    leaderless: tuple[LeaderlessPartitions, ...] = ()
    unmarked: str | None = None  # why the completeness marks were not updated
    tasks: tuple[TaskReport, ...] = ()  # of a load, slowest first
    compacted: CompactionReport | None = None  # of the compaction after a load

    @property
    def left_out(self) -> str | None:
        """Everything that the load could not do, in one line, or None if it did everything."""
        partitions = sum(len(one.offsets) for one in self.leaderless)
        problems = (
            (len(self.refused), f"topics not loaded: {len(self.refused)}"),
            (partitions, f"partitions without a leader: {partitions}"),
            (self.unmarked, "completeness marks not updated"),
        )
        return "; ".join(text for is_so, text in problems if is_so) or None

    @property
    def rows(self) -> int:
        """The rows that the operation added to tables."""
        return sum(topic.rows for topic in self.topics)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
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
    """Return the report of an operation: of its commit, or of none, if it changed nothing."""
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
