"""The reports of operations, as frozen values: for people, as JSON, and beside each commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from hadoop_loader._commit.commit_record import Commit


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
    damaged: int = 0  # in damaged batches, which were skipped


@dataclass(frozen=True, slots=True)
class SkippedTopic:
    """A topic that was not loaded, and why; its offsets stay."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnreadPartitions:
    """The partitions of a topic that were not loaded to their end, and why."""

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
    refused: tuple[SkippedTopic, ...] = ()  # topics whose tables could not be changed
    settled: int = 0  # tables whose rows are all in their latest schema now

    def __str__(self) -> str:
        text = f"{self.partitions} partitions: {self.files_before} files became {self.files_after}"
        return f"{text}; {self.settled} views became plain" if self.settled else text


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
    leaderless: tuple[UnreadPartitions, ...] = ()
    unmarked: str | None = None  # why the completeness marks were not updated
    tasks: tuple[TaskReport, ...] = ()  # of a load, slowest first
    compacted: CompactionReport | None = None  # of the compaction after a load
    damaged: tuple[UnreadPartitions, ...] = ()  # loaded up to a damaged batch
    removed: str | None = None  # the partitions that retention removed
    acknowledged: tuple[SkippedTopic, ...] = ()  # refused for a reason that was acknowledged
    unpublished: tuple[SkippedTopic, ...] = ()  # loaded, but not published to Iceberg
    rebuilt: tuple[str, ...] = ()  # topics whose tables this load has rebuilt

    @property
    def left_out(self) -> str | None:
        """Everything that the load could not do, in one line, or None if it did everything."""
        partitions = sum(len(one.offsets) for one in self.leaderless)
        damaged = sum(len(one.offsets) for one in self.damaged)
        problems = (
            (len(self.refused), f"topics not loaded: {len(self.refused)}"),
            (partitions, f"partitions without a leader: {partitions}"),
            (damaged, f"partitions with a damaged batch: {damaged}"),
            (self.unmarked, "completeness marks not updated"),
            (self.unpublished, f"topics not published to Iceberg: {len(self.unpublished)}"),
        )
        return "; ".join(text for is_so, text in problems if is_so) or None

    @property
    def rows(self) -> int:
        """The rows that the operation added to tables."""
        return sum(topic.rows for topic in self.topics)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values (dataclasses.asdict would copy every offset)."""
        return {**_members(self), "rows": self.rows}


def _members(value: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return _members(value) if is_dataclass(value) else value


def report_of(
    number: int,
    commit: Commit | None,
    ungoverned: Sequence[str] = (),
    refused: Sequence[SkippedTopic] = (),
    seconds: dict[str, float] | None = None,
    leaderless: Sequence[UnreadPartitions] = (),
    tasks: Sequence[TaskReport] = (),
    damaged: Sequence[UnreadPartitions] = (),
    acknowledged: Mapping[str, str] | None = None,
) -> LoadReport:
    """Return the report of an operation: of its commit, or of none, if it changed nothing.

    Topics in `refused` have no rows in it, even if they are committed. `acknowledged`: the reasons
    of refusals, by topic, that are none any more.
    """
    known = acknowledged or {}
    tables = commit.tables if commit else {}
    left = {one.topic for one in refused}
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
            damaged=found.damaged,
        )
        for topic, found in (commit.topics.items() if commit else ())
        if topic not in left
    ]
    return LoadReport(
        number,
        tuple(topics),
        tuple(ungoverned),
        tuple(sorted((r for r in refused if known.get(r.topic) != r.reason), key=_topic)),
        seconds or {},
        commit.kind if commit else "load",
        commit is not None,
        tuple(leaderless),
        tasks=tuple(sorted(tasks, key=lambda task: -task.seconds)),
        damaged=tuple(damaged),
        acknowledged=tuple(
            sorted((r for r in refused if known.get(r.topic) == r.reason), key=_topic)
        ),
    )


def _topic(refusal: SkippedTopic) -> str:
    return refusal.topic


def join_reports(first: LoadReport, second: LoadReport, rebuilt: tuple[str, ...]) -> LoadReport:
    """Return the report of two loads, between which the tables of `rebuilt` were rebuilt."""
    phases = {**first.seconds, **second.seconds}
    seconds = {p: first.seconds.get(p, 0.0) + second.seconds.get(p, 0.0) for p in phases}
    return replace(
        second,
        topics=(*first.topics, *second.topics),
        seconds=seconds,
        committed=first.committed or second.committed,
        tasks=(*first.tasks, *second.tasks),
        rebuilt=rebuilt,
    )
