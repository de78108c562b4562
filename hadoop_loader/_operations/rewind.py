"""Loading again: from an offset or a time (rewind), or from quarantine (requeue).

Rules:

- New rows replace the old ones in one commit. A partition with replaced rows gets a new folder,
  which holds the rows that stay and the new ones. Readers switch partition by partition.
- Rows that cannot be read again are not replaced. Those that retention removed from the log stay.
  If the log has fewer messages than the tables have rows (compaction), the rewind is refused.
- Offsets do not change. The audit gets the difference, so its sums stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_record import Commit, TableState
from hadoop_loader._commit.report import LoadReport, report_of
from hadoop_loader._commit.table_history import table_history
from hadoop_loader._commit.task_results import (
    LoadedCounts,
    check_coverage,
    group_by_topic,
    topic_commit,
)
from hadoop_loader._commit.topic_lives import check_same_topic
from hadoop_loader._commit.topic_plans import next_state, plan_topics, store_texts
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._decode.quarantine import QUARANTINE_COLUMNS, QUARANTINE_TABLE
from hadoop_loader._fetch.damage import DamageReport
from hadoop_loader._fetch.messages import FetchedMessage
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._fetch.ranges import FetchRange, no_leader_error
from hadoop_loader._operations.load import make_tasks
from hadoop_loader._operations.refusals import table_of
from hadoop_loader._storage.filesystem import AnyPath, parquet_source
from hadoop_loader._storage.staging import StagedFile
from hadoop_loader._tasks.latest_rows import TableHistory
from hadoop_loader._tasks.load_task import (
    LoadTask,
    TaskManifest,
    TopicManifest,
    TopicPlan,
    run_load_task,
)
from hadoop_loader._tasks.rewrite_task import DroppedRows, RewriteResult, RewriteTask
from headworks.errors import FindingsError, UsageError


class _RowReplacement:
    """The common part of rewind and requeue: old rows out, new rows in."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)

    def _begin(self, topic: str) -> tuple[Commit, TableState, TopicPlan]:
        """Return the last commit, the topic's table, and its plan; UsageError if it has none."""
        last, state = table_of(self._transaction.recover(), topic, self._context.root)
        self._transaction.failures.require(state.files_table, QUARANTINE_TABLE)
        found = plan_topics(
            [topic], self._context.versions, last, self._context.log, self._context.policy
        )
        if found.refused:
            raise FindingsError(f"topic {topic} cannot be read: {found.refused[0].reason}")
        if found.ungoverned:
            raise UsageError(
                f"topic {topic} has no schema any more",
                fix=f"register one as {topic}-value",
            )
        return last, state, found.plans[topic]

    def _new_commit(self, last: Commit, kind: str, plan: TopicPlan) -> CommitBuilder:
        """Return the builder of a commit that gives the topic's table its latest schema."""
        check_same_topic(last, self._context.broker.identify([plan.topic]), plan.topic)
        builder = self._transaction.new_commit(last, kind)
        before = builder.tables[plan.topic]
        store_texts(plan, self._context.log)
        builder.tables[plan.topic] = next_state(plan, before, builder.number, before.record_bytes)
        return builder

    def _without(
        self, builder: CommitBuilder, topic: str, table: str, dropped: DroppedRows
    ) -> list[RewriteResult]:
        """Stage a table's partitions without the dropped rows, and relocate them."""
        staging = self._transaction.staging(builder.number)
        own = table != QUARANTINE_TABLE
        jobs = [
            RewriteTask(
                builder.number,
                topic,
                table,
                day,
                tuple(sources),
                staging,
                dropped,
                () if own else QUARANTINE_COLUMNS,
                self._history(builder, topic) if own else None,
            )
            for day in builder.days(table)
            if (sources := builder.sources(table, day))
        ]
        done = [r for r in self._context.jobs.rewrite(jobs) if r.dropped] if jobs else []
        for r in done:
            if table != QUARANTINE_TABLE:
                builder.add_file_count(topic, len(r.files) - len(builder.sources(table, r.day)))
            builder.relocate(table, r.day)
            builder.files.extend(r.files)
        return done

    def _take_in(
        self,
        builder: CommitBuilder,
        plan: TopicPlan,
        parts: Sequence[TopicManifest],
        files: Sequence[StagedFile],
        replaced: LoadedCounts,
    ) -> LoadReport:
        topic, now = plan.topic, self._transaction.now_ms()
        builder.files.extend(files)
        new = sum(f.table == plan.table for f in files)
        builder.count(topic, topic_commit(parts, new, instead=replaced), now)
        self._context.on_step("staged")
        commit = self._transaction.commit(builder)
        report = report_of(commit.number, commit, seconds=dict(self._transaction.seconds))
        self._context.log.write_report(commit.number, report.as_dict())
        self._transaction.failures.require(plan.table, QUARANTINE_TABLE)
        return report

    def _history(self, builder: CommitBuilder, topic: str) -> TableHistory:
        return table_history(builder.tables[topic], self._context.log, builder.number)

    def _nothing(self, last: Commit) -> LoadReport:
        self._transaction.remove_staging(last)
        return replace(report_of(last.number, None), seconds=dict(self._transaction.seconds))


class Rewind(_RowReplacement):
    """Loads a topic again from a position up to its committed offsets."""

    def run(self, topic: str, to: RewindPosition) -> LoadReport:
        """Replace all rows from `to` on; see the module for what is refused."""
        last, state, plan = self._begin(topic)
        with self._transaction.phase("plan"):
            ranges = self._ranges(topic, to, last)
        if not ranges:
            return self._nothing(last)
        self._context.on_step("planned")
        builder = self._new_commit(last, "rewind", plan)
        with self._transaction.phase("read"):
            staging, bins = self._transaction.staging(builder.number), self._context.tasks
            tasks = make_tasks(ranges, {topic: plan}, last, builder.number, staging, bins)
            manifests = self._transaction.load(tasks, staging, sum(r.size for r in ranges))
            found = group_by_topic(manifests)
            check_coverage(ranges, found)
        with self._transaction.phase("rewrite"):
            starts = {r.partition: r.start for r in ranges}
            old = self._without(
                builder, topic, state.files_table, DroppedRows(None, starts, plan.life)
            )
            bad = self._without(
                builder, topic, QUARANTINE_TABLE, DroppedRows(topic, starts, plan.life)
            )
        _check_no_loss(topic, found[topic], [*old, *bad])
        replaced = _replaced(old, bad)
        files = [f for m in manifests for f in m.files]
        return self._take_in(builder, plan, found[topic], files, replaced)

    def _ranges(self, topic: str, to: RewindPosition, last: Commit) -> list[FetchRange]:
        committed = last.committed(topic)
        known = self._context.broker.partitions().get(topic, ())
        marks = self._context.broker.watermarks({topic: known}).get(topic, {})
        needed = known if to.partition is None else [p for p in known if p == to.partition]
        if away := [p for p in needed if p not in marks]:
            raise no_leader_error(topic, away)
        starts = to.starts(
            marks, lambda ms: self._context.broker.offsets_at(topic, list(marks), ms)
        )
        ranges = []
        for partition, start in sorted(starts.items()):
            end = committed.get(partition, 0)
            if start < min(marks[partition].low, end):
                raise UsageError(
                    f"{topic}[{partition}] begins at offset {marks[partition].low}: retention has "
                    f"removed offset {start}, and rows that cannot be read again are not replaced",
                    fix="rewind to a later offset or time, or to `earliest`",
                )
            if start < end:
                ranges.append(FetchRange(topic, partition, start, end))
        return ranges


class Requeue(_RowReplacement):
    """Decodes a topic's quarantined messages again, once a missing schema is registered."""

    def run(self, topic: str) -> LoadReport:
        """Move the messages that can be decoded now into the table; the rest stay in quarantine."""
        last, _, plan = self._begin(topic)
        builder = self._new_commit(last, "requeue", plan)
        sources = [
            file
            for day in builder.days(QUARANTINE_TABLE)
            for file in builder.sources(QUARANTINE_TABLE, day)
        ]
        self._context.on_step("planned")
        with self._transaction.phase("read"):
            each = [self._read(builder, plan, sources, life) for life in range(1, plan.life + 1)]
        topics = [t for manifest in each for t in manifest.topics]
        if not sum(t.rows for t in topics):
            return self._nothing(last)
        with self._transaction.phase("rewrite"):
            every = DroppedRows(topic, dict.fromkeys(last.committed(topic), 0))
            bad = self._without(builder, topic, QUARANTINE_TABLE, every)
        _check_no_loss(topic, topics, bad)
        files = [file for manifest in each for file in manifest.files]
        return self._take_in(builder, plan, topics, files, _replaced([], bad))

    def _read(
        self, builder: CommitBuilder, plan: TopicPlan, sources: Sequence[AnyPath], life: int
    ) -> TaskManifest:
        """Decode the messages of one life of the topic."""
        plan = replace(plan, life=life)
        nothing = (FetchRange(plan.topic, 0, 0, 0),)
        staging = self._transaction.staging(builder.number)
        task = LoadTask(builder.number, nothing, {plan.topic: plan}, staging)
        return run_load_task(task, _QuarantineFetcher(sources, life))


class _QuarantineFetcher:
    """A fetcher that reads the messages of the quarantine table, of one life of the topic."""

    def __init__(self, sources: Sequence[AnyPath], life: int) -> None:
        self._sources = sources
        self._life = life

    def fetch(
        self,
        ranges: Sequence[FetchRange],
        damage: DamageReport | None = None,  # noqa: ARG002
    ) -> Iterator[tuple[str, list[FetchedMessage]]]:
        """Return every quarantined message of the ranges' single topic, whatever the ranges."""
        (topic,) = {r.topic for r in ranges}
        for source in self._sources:
            for batch in pq.ParquetFile(
                parquet_source(source), page_checksum_verification=True
            ).iter_batches(10_000):
                rows: Any = batch.filter(pc.field("topic") == topic)
                if "_topic_life" in rows.schema.names:
                    lives: Any = pc.fill_null(rows.column("_topic_life"), 1)
                    rows = rows.filter(pc.equal(lives, pa.scalar(self._life, pa.int32())))
                elif self._life > 1:
                    continue
                stamps = rows.column("_timestamp").cast(pa.int64()).to_pylist()  # microseconds
                names = ("_partition", "_offset", "key", "value")
                partitions, offsets, keys, values = (
                    rows.column(name).to_pylist() for name in names
                )
                yield (
                    topic,
                    [
                        FetchedMessage(partition, offset, stamp // 1000, key, value)
                        for partition, offset, stamp, key, value in zip(
                            partitions, offsets, stamps, keys, values, strict=True
                        )
                    ],
                )


def _replaced(old: Sequence[RewriteResult], bad: Sequence[RewriteResult]) -> LoadedCounts:
    windows: LoadedCounts = {}
    for outcome, found in (("loaded", old), ("quarantined", bad)):
        for r in found:
            for window, n in r.dropped.items():
                counts = windows.setdefault(str(window), {})
                counts[outcome] = counts.get(outcome, 0) + n
    return windows


def _check_no_loss(
    topic: str, parts: Sequence[TopicManifest], replaced: Sequence[RewriteResult]
) -> None:
    new = sum(p.rows + p.quarantined for p in parts)
    old = sum(n for r in replaced for n in r.dropped.values())
    if new < old:
        raise FindingsError(
            f"topic {topic} gives {new:,} messages, and the tables hold {old:,} rows of them: "
            f"{old - new:,} would be lost; nothing has changed",
            fix="a compacted topic has forgotten messages that the tables keep: rewind to an "
            "offset behind them",
        )
