"""One load, as the driver sees it: finish the last one, plan, read, commit, apply.

Rules:

- The ends of partitions are read before the schemas: whatever is in a range was written with a
  schema that the registry had by then.
- Nothing new (no messages, no schema) makes no commit.
- A topic that cannot be loaded keeps its offsets, is reported, and holds up no other; neither does
  a partition without a leader.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hadoop_loader._commit.commit_builder import Draft, files_by_topic
from hadoop_loader._commit.commit_log import Commit
from hadoop_loader._commit.policy import QuarantineLimit, bytes_a_day
from hadoop_loader._commit.report import Leaderless, LoadReport, Refusal, TaskReport, report_of
from hadoop_loader._commit.task_results import (
    Found,
    by_topic,
    check_covered,
    record_bytes,
    topic_commit,
)
from hadoop_loader._commit.topic_plans import Governed, changes, govern, next_state
from hadoop_loader._commit.transaction import Parts, Progress, Work
from hadoop_loader._fetch.ranges import (
    Gap,
    GapError,
    Range,
    Watermarks,
    bytes_in,
    new_ranges,
    pack,
    unled,
)
from hadoop_loader._storage.filesystem import Place
from hadoop_loader._tasks.load_task import Manifest, Task, TopicManifest, TopicPlan
from headworks.errors import HeadworksError

__all__ = ["Loading", "TooMuchBadError", "tasks_of"]

_LOG = logging.getLogger(__name__)


class TooMuchBadError(HeadworksError):
    """A topic with more bad messages than the limit lets pass."""


@dataclass(slots=True)
class _Plan:
    """What is new; `tasks`: what reading it took."""

    governed: Governed
    ranges: list[Range] = field(default_factory=list)
    gaps: dict[str, list[Gap]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    leaderless: list[Leaderless] = field(default_factory=list)
    evolved: list[str] = field(default_factory=list)
    tasks: list[TaskReport] = field(default_factory=list)

    def leave_out(self, topic: str, reason: str) -> None:
        """The topic stays as it is."""
        self.refused.append(Refusal(topic, reason))
        self.ranges = [r for r in self.ranges if r.topic != topic]
        self.leaderless = [one for one in self.leaderless if one.topic != topic]
        self.gaps.pop(topic, None)
        self.evolved = [t for t in self.evolved if t != topic]

    def leave_partitions(self, topic: str, away: Sequence[int], last: Commit | None) -> None:
        """These partitions of a topic stay as they are, for want of a leader."""
        if any(refusal.topic == topic for refusal in self.refused):
            return
        error, committed = unled(topic, away), last.committed(topic) if last else {}
        stand = {partition: committed.get(partition) for partition in away}
        _LOG.warning(
            "%s: they stay where they stand, %s",
            error.message,
            ", ".join(f"{p} at offset {at}" for p, at in stand.items() if at is not None)
            or "at their beginning",
            extra={"topic": topic, "partitions": list(away)},
        )
        self.leaderless.append(Leaderless(topic, stand, str(error)))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.ranges and not self.evolved and not self.gaps


class Loading:
    """Runs one load with `parts`; `progress` hears of every phase as it begins."""

    def __init__(self, parts: Parts, progress: Progress | None = None) -> None:
        self._parts = parts
        self._work = Work(parts, progress)

    def run(self) -> LoadReport:
        """Load everything that is new."""
        last = self._work.recover()
        with self._work.phase("plan"):
            plan = self._plan(last)
        self._parts.reach("planned")
        manifests: list[Manifest] = []
        if plan.ranges:
            with self._work.phase("read"):
                manifests = self._read(plan, last)
            found = by_topic(manifests)
            check_covered(plan.ranges, found)
            plan.tasks = [_told(manifest) for manifest in manifests]
            manifests = self._held_back(plan, found, manifests)
        if plan.empty:
            self._work.clean(last)
            report = self._report(last.number if last else 0, None, plan)
        else:
            self._parts.reach("staged")
            commit = self._work.commit(self._draft(plan, manifests, last))
            report = self._report(commit.number, commit, plan)
            self._parts.log.keep_report(commit.number, report.as_dict())
        self._parts.log.keep_last_run(report.as_dict())
        return report

    def _plan(self, last: Commit | None) -> _Plan:
        parts = self._parts
        topics = {t: ps for t, ps in parts.broker.partitions().items() if parts.policy.takes(t)}
        marks = parts.broker.watermarks(topics)
        governed = govern(marks, parts.versions, last, parts.log, parts.policy)
        plan = _Plan(governed, refused=list(governed.refused))
        for topic, topic_plan in governed.plans.items():
            self._plan_topic(plan, topic_plan, marks[topic], last)
            if away := sorted({*topics[topic]} - marks[topic].keys()):
                plan.leave_partitions(topic, away, last)
        return plan

    def _plan_topic(
        self, plan: _Plan, topic: TopicPlan, marks: Mapping[int, Watermarks], last: Commit | None
    ) -> None:
        committed = last.committed(topic.topic) if last else {}
        skip = self._parts.policy.skip_lost
        try:
            ranges, gaps = new_ranges(topic.topic, committed, marks, skip_lost=skip)
        except GapError as error:
            plan.refused.append(Refusal(topic.topic, str(error)))
            return
        plan.ranges.extend(ranges)
        if gaps:
            plan.gaps[topic.topic] = gaps
        before = last.tables.get(topic.topic) if last else None
        if changes(topic, before) and (before is not None or ranges):
            plan.evolved.append(topic.topic)

    def _read(self, plan: _Plan, last: Commit | None) -> list[Manifest]:
        number = (last.number if last else 0) + 1
        staging, bins = self._work.staging(number), self._parts.tasks
        tasks = tasks_of(plan.ranges, plan.governed.plans, last, number, staging, bins)
        return self._work.load(tasks, staging, sum(r.size for r in plan.ranges))

    def _held_back(
        self, plan: _Plan, found: Found, manifests: Sequence[Manifest]
    ) -> list[Manifest]:
        """The manifests without the topics of which too much is bad; those leave the plan."""
        held = set()
        for topic, parts in found.items():
            try:
                _check_limit(topic, parts, self._parts.policy.limit)
            except TooMuchBadError as error:
                plan.leave_out(topic, str(error))
                held.add(topic)
        return [
            replace(
                m,
                files=tuple(f for f in m.files if f.topic not in held),
                topics=tuple(t for t in m.topics if t.topic not in held),
            )
            for m in manifests
        ]

    def _draft(self, plan: _Plan, manifests: Sequence[Manifest], last: Commit | None) -> Draft:
        found, now = by_topic(manifests), self._work.now_ms()
        draft = self._work.draft(last, "load")
        draft.advance(plan.ranges)
        draft.advance(_as_range(t, gap) for t, gaps in plan.gaps.items() for gap in gaps)
        draft.files = [file for m in manifests for file in m.files]
        for topic in sorted({*found, *plan.evolved}):
            topic_plan = plan.governed.plans[topic]
            self._parts.log.keep_schema(topic_plan.latest.text)
            before = draft.tables.get(topic)
            size = record_bytes(found.get(topic, ()), before.record_bytes if before else 200.0)
            draft.tables[topic] = next_state(topic_plan, before, draft.number, size)
        counted = sorted({*found, *plan.gaps} & draft.tables.keys())
        files = files_by_topic(draft.files, {t: draft.tables[t].files_table for t in counted})
        for topic in counted:
            counts = topic_commit(found.get(topic, ()), files[topic], gaps=plan.gaps.get(topic, ()))
            draft.count(topic, counts, now)
            if counts.bytes:
                volume = round(bytes_a_day(counts.windows), 0)
                draft.tables[topic] = replace(draft.tables[topic], bytes_a_day=volume)
        return draft

    def _report(self, number: int, commit: Commit | None, plan: _Plan) -> LoadReport:
        return report_of(
            number,
            commit,
            plan.governed.ungoverned,
            plan.refused,
            dict(self._work.seconds),
            plan.leaderless,
            plan.tasks,
        )


def tasks_of(
    ranges: Sequence[Range],
    plans: Mapping[str, TopicPlan],
    last: Commit | None,
    number: int,
    staging: Place,
    bins: int,
) -> list[Task]:
    """The bins of a load, as tasks."""
    sizes = {t: s.record_bytes for t, s in last.tables.items()} if last else {}
    return [
        Task(
            number,
            packed,
            {t: plans[t] for t in {r.topic for r in packed}},
            staging,
            bytes_in(packed, sizes),
        )
        for packed in pack(ranges, bins, sizes)
    ]


def _told(manifest: Manifest) -> TaskReport:
    """What a task did, for the report."""
    return TaskReport(
        topics=len({found.topic for found in manifest.topics}),
        messages=sum(found.rows + found.quarantined for found in manifest.topics),
        bytes=sum(found.bytes for found in manifest.topics),
        seconds=round(sum(manifest.seconds.values()), 3),
    )


def _check_limit(topic: str, parts: Sequence[TopicManifest], limit: QuarantineLimit | None) -> None:
    rows, bad = sum(p.rows for p in parts), sum(p.quarantined for p in parts)
    if limit is None or not limit.broken(rows, bad):
        return
    first = next(p.first_bad for p in parts if p.first_bad)
    raise TooMuchBadError(
        f"{bad:,} of {rows + bad:,} new messages of {topic} are bad, more than {limit}: the first "
        f"is {first}",
        fix="mend what writes them, or register the schema they lack; or let them into the "
        "quarantine table with --quarantine-limit none",
    )


def _as_range(topic: str, gap: Gap) -> Range:
    return Range(topic, gap.partition, gap.start, gap.end)
