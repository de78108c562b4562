"""One load, as the driver runs it: recover, plan, read, commit, apply.

Rules:

- The end offsets are read before the schemas. So every message of a range was written with a schema
  that the registry already had. Schemas that were prefetched are compared with the registry then.
- If there are no new messages and no new schemas, nothing is committed.
- A topic that cannot be loaded keeps its offsets and is reported. It delays no other topic, and
  neither does a partition without a leader, or one with a damaged batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from hadoop_loader._commit.commit_builder import CommitBuilder, count_files_by_topic
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.policy import bytes_per_day
from hadoop_loader._commit.report import (
    LoadReport,
    SkippedTopic,
    TaskReport,
    join_reports,
    report_of,
)
from hadoop_loader._commit.task_results import (
    ResultsByTopic,
    check_coverage,
    check_quarantine_limit,
    group_by_topic,
    mean_record_bytes,
    topic_commit,
    without_topics,
)
from hadoop_loader._commit.topic_lives import changed_topics, check_cluster, is_new_life
from hadoop_loader._commit.topic_plans import (
    check_new_tables,
    next_state,
    plan_topics,
    schema_changed,
    store_texts,
)
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.damage import DamagedRange, cut_ranges
from hadoop_loader._fetch.ranges import (
    FetchRange,
    OffsetGap,
    OffsetGapError,
    Watermarks,
    assign_to_tasks,
    new_ranges,
)
from hadoop_loader._operations.load_plan import LoadPlan
from hadoop_loader._operations.rebuild import rebuild_each
from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._tasks.load_task import LoadTask, TaskManifest, TopicPlan
from headworks._native import COMPILED
from headworks.errors import CorruptError, FindingsError

_MAX_READS = 5  # of a topic with damaged batches in several tasks
_LOG = logging.getLogger(__name__)
_SLOW = (
    "the C extensions are missing, so Python decodes the messages, more than ten times as slowly; "
    "fix: install gcc and Python's headers, and then install headworks again"
)


class Load:
    """One load; `progress` is called in each phase."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._progress = progress
        self._transaction = Transaction(parts, progress)

    def run(self) -> LoadReport:
        """Load everything that is new; then rebuild tables that cannot follow, and load those."""
        report, behind = self._run({})
        if not behind or self._context.policy.rebuild == "never":
            return report
        reasons = rebuild_each(self._context, behind, self._progress)
        again, _ = Load(self._context, self._progress)._run(reasons)
        both = join_reports(report, again, tuple(t for t in behind if t not in reasons))
        self._context.log.write_last_run(both.as_dict())
        return both

    def _run(self, reasons: Mapping[str, str]) -> tuple[LoadReport, tuple[str, ...]]:
        """Load what tables can take; also return the topics whose tables need a rebuild.

        `reasons`: why the rebuild of a topic's table failed, to be told in place of its need.
        """
        last = self._transaction.recover()
        with self._transaction.phase("plan"):
            plan = self._plan(last)
        plan.refused = [replace(r, reason=reasons.get(r.topic, r.reason)) for r in plan.refused]
        self._context.on_step("planned")
        manifests: list[TaskManifest] = []
        if plan.ranges:
            if not COMPILED:
                _LOG.warning(_SLOW)
            with self._transaction.phase("read"):
                manifests = self._read(plan, plan.ranges, last)
                manifests = self._without_damage(plan, last, manifests)
            found = group_by_topic(manifests)
            check_coverage(plan.ranges, found)
            plan.tasks = [_task_report(manifest) for manifest in manifests]
            manifests = self._without_bad_topics(plan, found, manifests)
            manifests = self._without_replaced_topics(plan, manifests)
        if plan.empty:
            self._transaction.remove_staging(last)
            report = self._report(last, None, plan)
            told = report.as_dict()
        else:
            self._context.on_step("staged")
            commit = self._transaction.commit(self._build_commit(plan, manifests, last))
            report = self._report(last, commit, plan)
            told = report.as_dict()
            self._context.log.write_report(commit.number, told)
        self._context.log.write_last_run(told)
        return report, plan.topics.behind

    def _plan(self, last: Commit | None) -> LoadPlan:
        parts = self._context
        failed = {skipped.topic for skipped in self._transaction.skipped_topics(last)}
        topics = {
            topic: partitions
            for topic, partitions in parts.broker.partitions().items()
            if parts.policy.includes(topic) and topic not in failed
        }
        parts.prefetch_versions(
            topics, partial(check_new_tables, last=last, embedded=parts.embedded)
        )
        identity = parts.broker.identify(topics)
        check_cluster(last, identity)
        marks = parts.broker.watermarks(topics)
        chosen = plan_topics(
            marks, parts.versions, last, parts.log, parts.policy, embedded=parts.embedded
        )
        plan = LoadPlan(chosen, refused=list(chosen.refused), identity=identity)
        for topic, topic_plan in chosen.plans.items():
            self._plan_topic(plan, topic_plan, marks[topic], last)
            if away := sorted({*topics[topic]} - marks[topic].keys()):
                plan.skip_partitions(topic, away, last)
        return plan

    def _plan_topic(
        self,
        plan: LoadPlan,
        topic: TopicPlan,
        marks: Mapping[int, Watermarks],
        last: Commit | None,
    ) -> None:
        reborn = is_new_life(last, plan.identity, topic.topic)
        committed = last.committed(topic.topic) if last and not reborn else {}
        skip = self._context.policy.skip_lost
        try:
            ranges, gaps = new_ranges(topic.topic, committed, marks, skip_lost=skip)
        except OffsetGapError as error:
            plan.refused.append(SkippedTopic(topic.topic, str(error)))
            return
        plan.ranges.extend(ranges)
        if reborn and ranges:
            topic = replace(topic, life=topic.life + 1)
            plan.topics.plans[topic.topic] = topic
            plan.reborn.add(topic.topic)
            _LOG.warning(
                "topic %s was deleted and made again: it is loaded from its first message on, and "
                "the new rows have _topic_life %d",
                topic.topic,
                topic.life,
                extra={"topic": topic.topic, "life": topic.life},
            )
        if gaps:
            plan.gaps[topic.topic] = gaps
        before = last.tables.get(topic.topic) if last else None
        if schema_changed(topic, before) and (before is not None or ranges):
            plan.evolved.append(topic.topic)

    def _read(
        self, plan: LoadPlan, ranges: Sequence[FetchRange], last: Commit | None
    ) -> list[TaskManifest]:
        """Return the results; leave the topics with partitions that have lost their leader."""
        number = (last.number if last else 0) + 1
        staging, bins = self._transaction.staging(number), self._context.tasks
        skip = self._context.policy.skip_damaged
        tasks = [
            replace(task, skip_damaged=skip)
            for task in make_tasks(ranges, plan.topics.plans, last, number, staging, bins)
        ]
        manifests = self._transaction.load(tasks, staging, sum(r.size for r in ranges))
        away: dict[str, set[int]] = {}
        for found in (each for m in manifests for each in m.topics if each.leaderless):
            away.setdefault(found.topic, set()).update(found.leaderless)
        for topic in sorted(away):
            plan.leave_topic(topic, sorted(away[topic]), last)
        return [without_topics(m, away) for m in manifests]

    def _without_damage(
        self, plan: LoadPlan, last: Commit | None, manifests: list[TaskManifest]
    ) -> list[TaskManifest]:
        """End the plan of each partition before its first damaged batch, and return its results.

        Other tasks may have read the messages behind that batch. Their files hold messages of other
        partitions too, so such a topic is read again.
        """
        if self._context.policy.skip_damaged:
            return manifests
        damaged: set[DamagedRange] = set()
        for _ in range(_MAX_READS):
            damaged |= {one for m in manifests for found in m.topics for one in found.damaged}
            plan.end_before(damaged)
            planned = {r.topic for r in plan.ranges}
            covered = sorted(r for m in manifests for found in m.topics for r in found.ranges)
            behind = {r.topic for r in covered if cut_ranges([r], damaged) != [r]}
            unread = {one.topic for one in damaged} - planned
            manifests = [without_topics(m, behind | unread) for m in manifests]
            again = [r for r in plan.ranges if r.topic in behind]
            if not again:
                return manifests
            manifests += self._read(plan, again, last)
        raise CorruptError(
            "damage spreads in the log while it is read; nothing is committed",
            fix="see to the disks of the brokers, then load again",
        )

    def _without_bad_topics(
        self, plan: LoadPlan, found: ResultsByTopic, manifests: Sequence[TaskManifest]
    ) -> list[TaskManifest]:
        """Skip the topics with too many bad messages, and return the results without them."""
        skipped = set()
        for topic, parts in found.items():
            try:
                check_quarantine_limit(topic, parts, self._context.policy.limit)
                if any(part.quarantined for part in parts):
                    self._transaction.failures.require(QUARANTINE_TABLE)
            except FindingsError as error:
                plan.skip_topic(topic, str(error))
                skipped.add(topic)
        return [without_topics(m, skipped) for m in manifests]

    def _without_replaced_topics(
        self, plan: LoadPlan, manifests: Sequence[TaskManifest]
    ) -> list[TaskManifest]:
        """Skip the topics that were made again while they were read."""
        read = {r.topic for r in plan.ranges}
        changed = changed_topics(plan.identity, self._context.broker.identify(read), read)
        for topic in changed:
            plan.skip_topic(topic, "it was deleted, or made again, during the load; load again")
        return [without_topics(m, changed) for m in manifests]

    def _build_commit(
        self, plan: LoadPlan, manifests: Sequence[TaskManifest], last: Commit | None
    ) -> CommitBuilder:
        found, now = group_by_topic(manifests), self._transaction.now_ms()
        builder = self._transaction.new_commit(last, "load")
        loaded = {r.topic for r in plan.ranges} | plan.gaps.keys()
        builder.acknowledged = {t: r for t, r in builder.acknowledged.items() if t not in loaded}
        builder.begin_lives(plan.reborn & loaded)
        builder.identify(plan.identity, loaded)
        builder.advance_offsets(plan.ranges)
        builder.advance_offsets(
            _range_of_gap(t, gap) for t, gaps in plan.gaps.items() for gap in gaps
        )
        builder.files = [file for m in manifests for file in m.files]
        for topic in sorted({*found, *plan.evolved}):
            topic_plan = plan.topics.plans[topic]
            store_texts(topic_plan, self._context.log)
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

    def _report(self, last: Commit | None, commit: Commit | None, plan: LoadPlan) -> LoadReport:
        known = commit or last
        return report_of(
            known.number if known else 0,
            commit,
            plan.topics.ungoverned,
            [*plan.refused, *self._transaction.skipped_topics(known)],
            dict(self._transaction.seconds),
            plan.leaderless,
            plan.tasks,
            plan.damaged,
            known.acknowledged if known else None,
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


def _range_of_gap(topic: str, gap: OffsetGap) -> FetchRange:
    return FetchRange(topic, gap.partition, gap.start, gap.end)
