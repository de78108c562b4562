"""One load, as the driver runs it: recover, plan, read, commit, apply.

Rules:

- The end offsets are read before the schemas. So every message of a range was written with a schema
  that the registry already had.
- If there are no new messages and no new schemas, nothing is committed.
- A topic that cannot be loaded keeps its offsets and is reported. It delays no other topic, and
  neither does a partition without a leader.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hadoop_loader._commit.commit_builder import CommitBuilder, count_files_by_topic
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.policy import QuarantineLimit, bytes_per_day
from hadoop_loader._commit.report import (
    LeaderlessPartitions,
    LoadReport,
    SkippedTopic,
    TaskReport,
    report_of,
)
from hadoop_loader._commit.task_results import (
    ResultsByTopic,
    check_coverage,
    group_by_topic,
    mean_record_bytes,
    topic_commit,
)
from hadoop_loader._commit.topic_plans import TopicPlans, next_state, plan_topics, schema_changed
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._fetch.ranges import (
    FetchRange,
    OffsetGap,
    OffsetGapError,
    Watermarks,
    assign_to_tasks,
    estimated_bytes,
    new_ranges,
    no_leader_error,
)
from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._tasks.load_task import LoadTask, TaskManifest, TopicManifest, TopicPlan
from headworks.errors import HeadworksError

__all__ = ["Load", "QuarantineLimitError", "make_tasks"]

_LOG = logging.getLogger(__name__)


class QuarantineLimitError(HeadworksError):
    """A topic has more bad messages than the limit allows."""


@dataclass(slots=True)
class _LoadPlan:
    """Everything that a load is going to do."""

    topics: TopicPlans
    ranges: list[FetchRange] = field(default_factory=list)  # the new messages
    gaps: dict[str, list[OffsetGap]] = field(
        default_factory=dict
    )  # lost messages to skip, by topic
    refused: list[SkippedTopic] = field(default_factory=list)
    leaderless: list[LeaderlessPartitions] = field(default_factory=list)
    evolved: list[str] = field(default_factory=list)  # topics with a new schema
    tasks: list[TaskReport] = field(default_factory=list)  # set once they have run

    def skip_topic(self, topic: str, reason: str) -> None:
        """Leave a topic as it is, and report why."""
        self.refused.append(SkippedTopic(topic, reason))
        self.ranges = [r for r in self.ranges if r.topic != topic]
        self.leaderless = [one for one in self.leaderless if one.topic != topic]
        self.gaps.pop(topic, None)
        self.evolved = [t for t in self.evolved if t != topic]

    def skip_partitions(self, topic: str, away: Sequence[int], last: Commit | None) -> None:
        """Leave partitions as they are, because they have no leader."""
        if any(refusal.topic == topic for refusal in self.refused):
            return
        error, committed = no_leader_error(topic, away), last.committed(topic) if last else {}
        offsets = {partition: committed.get(partition) for partition in away}
        _LOG.warning(
            "%s; their offsets stay: %s",
            error.message,
            ", ".join(f"{p} at {at}" for p, at in offsets.items() if at is not None)
            or "nothing was loaded yet",
            extra={"topic": topic, "partitions": list(away)},
        )
        self.leaderless.append(LeaderlessPartitions(topic, offsets, str(error)))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.ranges and not self.evolved and not self.gaps


class Load:
    """One load; `progress` is called in each phase."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)

    def run(self) -> LoadReport:
        """Load everything that is new."""
        last = self._transaction.recover()
        with self._transaction.phase("plan"):
            plan = self._plan(last)
        self._context.on_step("planned")
        manifests: list[TaskManifest] = []
        if plan.ranges:
            with self._transaction.phase("read"):
                manifests = self._read(plan, last)
            found = group_by_topic(manifests)
            check_coverage(plan.ranges, found)
            plan.tasks = [_task_report(manifest) for manifest in manifests]
            manifests = self._without_bad_topics(plan, found, manifests)
        if plan.empty:
            self._transaction.remove_staging(last)
            report = self._report(last.number if last else 0, None, plan)
        else:
            self._context.on_step("staged")
            commit = self._transaction.commit(self._build_commit(plan, manifests, last))
            report = self._report(commit.number, commit, plan)
            self._context.log.write_report(commit.number, report.as_dict())
        self._context.log.write_last_run(report.as_dict())
        return report

    def _plan(self, last: Commit | None) -> _LoadPlan:
        parts = self._context
        topics = {t: ps for t, ps in parts.broker.partitions().items() if parts.policy.includes(t)}
        marks = parts.broker.watermarks(topics)
        chosen = plan_topics(marks, parts.versions, last, parts.log, parts.policy)
        plan = _LoadPlan(chosen, refused=list(chosen.refused))
        for topic, topic_plan in chosen.plans.items():
            self._plan_topic(plan, topic_plan, marks[topic], last)
            if away := sorted({*topics[topic]} - marks[topic].keys()):
                plan.skip_partitions(topic, away, last)
        return plan

    def _plan_topic(
        self,
        plan: _LoadPlan,
        topic: TopicPlan,
        marks: Mapping[int, Watermarks],
        last: Commit | None,
    ) -> None:
        committed = last.committed(topic.topic) if last else {}
        skip = self._context.policy.skip_lost
        try:
            ranges, gaps = new_ranges(topic.topic, committed, marks, skip_lost=skip)
        except OffsetGapError as error:
            plan.refused.append(SkippedTopic(topic.topic, str(error)))
            return
        plan.ranges.extend(ranges)
        if gaps:
            plan.gaps[topic.topic] = gaps
        before = last.tables.get(topic.topic) if last else None
        if schema_changed(topic, before) and (before is not None or ranges):
            plan.evolved.append(topic.topic)

    def _read(self, plan: _LoadPlan, last: Commit | None) -> list[TaskManifest]:
        number = (last.number if last else 0) + 1
        staging, bins = self._transaction.staging(number), self._context.tasks
        tasks = make_tasks(plan.ranges, plan.topics.plans, last, number, staging, bins)
        return self._transaction.load(tasks, staging, sum(r.size for r in plan.ranges))

    def _without_bad_topics(
        self, plan: _LoadPlan, found: ResultsByTopic, manifests: Sequence[TaskManifest]
    ) -> list[TaskManifest]:
        """Skip the topics with too many bad messages, and return the results without them."""
        skipped = set()
        for topic, parts in found.items():
            try:
                _check_limit(topic, parts, self._context.policy.limit)
            except QuarantineLimitError as error:
                plan.skip_topic(topic, str(error))
                skipped.add(topic)
        return [
            replace(
                m,
                files=tuple(f for f in m.files if f.topic not in skipped),
                topics=tuple(t for t in m.topics if t.topic not in skipped),
            )
            for m in manifests
        ]

    def _build_commit(
        self, plan: _LoadPlan, manifests: Sequence[TaskManifest], last: Commit | None
    ) -> CommitBuilder:
        found, now = group_by_topic(manifests), self._transaction.now_ms()
        builder = self._transaction.new_commit(last, "load")
        builder.advance_offsets(plan.ranges)
        builder.advance_offsets(
            _range_of_gap(t, gap) for t, gaps in plan.gaps.items() for gap in gaps
        )
        builder.files = [file for m in manifests for file in m.files]
        for topic in sorted({*found, *plan.evolved}):
            topic_plan = plan.topics.plans[topic]
            self._context.log.schemas.put(topic_plan.latest.text)
            before = builder.tables.get(topic)
            size = mean_record_bytes(found.get(topic, ()), before.record_bytes if before else 200.0)
            builder.tables[topic] = next_state(topic_plan, before, builder.number, size)
        counted = sorted({*found, *plan.gaps} & builder.tables.keys())
        files = count_files_by_topic(
            builder.files, {t: builder.tables[t].files_table for t in counted}
        )
        for topic in counted:
            counts = topic_commit(found.get(topic, ()), files[topic], gaps=plan.gaps.get(topic, ()))
            builder.count(topic, counts, now)
            if counts.bytes:
                volume = round(bytes_per_day(counts.windows), 0)
                builder.tables[topic] = replace(builder.tables[topic], bytes_a_day=volume)
        return builder

    def _report(self, number: int, commit: Commit | None, plan: _LoadPlan) -> LoadReport:
        return report_of(
            number,
            commit,
            plan.topics.ungoverned,
            plan.refused,
            dict(self._transaction.seconds),
            plan.leaderless,
            plan.tasks,
        )


def make_tasks(
    ranges: Sequence[FetchRange],
    plans: Mapping[str, TopicPlan],
    last: Commit | None,
    number: int,
    staging: AnyPath,
    bins: int,
) -> list[LoadTask]:
    """Return the tasks of a load."""
    sizes = {t: s.record_bytes for t, s in last.tables.items()} if last else {}
    return [
        LoadTask(
            number,
            packed,
            {t: plans[t] for t in {r.topic for r in packed}},
            staging,
            estimated_bytes(packed, sizes),
        )
        for packed in assign_to_tasks(ranges, bins, sizes)
    ]


def _task_report(manifest: TaskManifest) -> TaskReport:
    """Return the report of one task."""
    return TaskReport(
        topics=len({found.topic for found in manifest.topics}),
        messages=sum(found.rows + found.quarantined for found in manifest.topics),
        bytes=sum(found.bytes for found in manifest.topics),
        seconds=round(sum(manifest.seconds.values()), 3),
    )


def _check_limit(topic: str, parts: Sequence[TopicManifest], limit: QuarantineLimit | None) -> None:
    rows, bad = sum(p.rows for p in parts), sum(p.quarantined for p in parts)
    if limit is None or not limit.exceeded_by(rows, bad):
        return
    first = next(p.first_bad for p in parts if p.first_bad)
    raise QuarantineLimitError(
        f"{bad:,} of {rows + bad:,} new messages of {topic} are bad, more than {limit}: the first "
        f"is {first}",
        fix="mend what writes them, or register the schema they lack; or let them into the "
        "quarantine table with --quarantine-limit none",
    )


def _range_of_gap(topic: str, gap: OffsetGap) -> FetchRange:
    return FetchRange(topic, gap.partition, gap.start, gap.end)
