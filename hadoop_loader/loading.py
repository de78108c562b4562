"""One load, as the driver sees it: finish the last one, plan, run, commit, apply.

Rules:

- The ends of partitions are read before the schemas: whatever is in a range was written with a
  schema that the registry had by then.
- Until the commit nothing outside the staging folder has changed; after it nothing can be lost.
- Nothing new (no messages, no schema) makes no commit.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hadoop_loader.commits import Commit, CommitFile, CommitLog, TableState, TopicCommit
from hadoop_loader.crash import Reach, reach
from hadoop_loader.fetch import Log
from hadoop_loader.governed import Governed, changes, govern, next_state
from hadoop_loader.plan import Gap, GapError, Range, Watermarks, new_ranges, pack
from hadoop_loader.quarantine import QUARANTINE_TABLE
from hadoop_loader.report import LoadReport, Refusal, TopicReport
from hadoop_loader.roll_forward import Catalog, Publish, apply, restore
from hadoop_loader.staging import StagedFile
from hadoop_loader.task import Manifest, Task, TopicManifest, TopicPlan, Writer
from headworks.errors import CorruptError

__all__ = ["Loading", "Parts", "Progress"]

Progress = Callable[[str], None]
Run = Callable[[Sequence[Task]], Sequence[Manifest]]
_STAGING = ".staging"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a load works with; tests put other parts in."""

    root: Path
    log: CommitLog
    broker: Log
    versions: Callable[[str], Sequence[Writer]]
    run: Run
    catalog: Catalog
    publish: Publish
    tasks: int
    skip_lost: bool = False
    reach: Reach = reach
    now: Callable[[], float] = time.time


@dataclass(slots=True)
class _Plan:
    """What is new."""

    governed: Governed
    ranges: list[Range] = field(default_factory=list)
    gaps: dict[str, list[Gap]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    evolved: list[str] = field(default_factory=list)


class Loading:
    """Runs one load with `parts`; `progress` hears of every phase as it begins."""

    def __init__(self, parts: Parts, progress: Progress | None = None) -> None:
        self._parts = parts
        self._progress = progress
        self._seconds: dict[str, float] = {}

    def recover(self) -> Commit | None:
        """Finish what the last load left undone; the last commit."""
        last = self._parts.log.latest()
        if last is not None:
            # First what other loads left: a table that apply() defines is not missing any more.
            restore(last, self._parts.log, self._parts.root, self._parts.catalog)
            if not self._parts.log.is_applied(last.number):
                with self._phase("recover"):
                    self._apply(last)
        shutil.rmtree(self._parts.root / _STAGING, ignore_errors=True)
        return last

    def run(self) -> LoadReport:
        """Load everything that is new."""
        last = self.recover()
        with self._phase("plan"):
            plan = self._plan(last)
        self._parts.reach("planned")
        number = (last.number if last else 0) + 1
        if not plan.ranges and not plan.evolved and not plan.gaps:
            return self._report(last.number if last else 0, None, plan)
        with self._phase("read"):
            manifests = self._read(plan, number, last)
        self._parts.reach("staged")
        with self._phase("commit"):
            commit = self._commit(plan, manifests, number, last)
        self._parts.reach("committed")
        with self._phase("apply"):
            self._apply(commit)
        shutil.rmtree(self._parts.root / _STAGING, ignore_errors=True)
        return self._report(number, commit, plan)

    def _plan(self, last: Commit | None) -> _Plan:
        parts = self._parts
        marks = parts.broker.watermarks(parts.broker.partitions())
        governed = govern(marks, parts.versions, last, parts.log)
        plan = _Plan(governed, refused=list(governed.refused))
        for topic, topic_plan in governed.plans.items():
            self._plan_topic(plan, topic_plan, marks[topic], last)
        return plan

    def _plan_topic(
        self, plan: _Plan, topic: TopicPlan, marks: Mapping[int, Watermarks], last: Commit | None
    ) -> None:
        committed = last.committed(topic.topic) if last else {}
        skip = self._parts.skip_lost
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

    def _read(self, plan: _Plan, number: int, last: Commit | None) -> list[Manifest]:
        staging = self._parts.root / _STAGING / f"{number:08d}"
        staging.mkdir(parents=True)
        sizes = {t: s.record_bytes for t, s in last.tables.items()} if last else {}
        tasks = [
            Task(
                number,
                ranges,
                {topic: plan.governed.plans[topic] for topic in {r.topic for r in ranges}},
                str(staging),
            )
            for ranges in pack(plan.ranges, self._parts.tasks, sizes)
        ]
        return list(self._parts.run(tasks)) if tasks else []

    def _commit(
        self, plan: _Plan, manifests: Sequence[Manifest], number: int, last: Commit | None
    ) -> Commit:
        found = _merged(manifests)
        _check_covered(plan.ranges, found)
        log = self._parts.log
        offsets = {t: dict(ps) for t, ps in last.offsets.items()} if last else {}
        for r in (*plan.ranges, *(_as_range(t, g) for t, gaps in plan.gaps.items() for g in gaps)):
            partitions = offsets.setdefault(r.topic, {})
            partitions[str(r.partition)] = max(r.end, partitions.get(str(r.partition), 0))
        tables = dict(last.tables) if last else {}
        for topic in sorted({*found, *plan.evolved}):
            topic_plan = plan.governed.plans[topic]
            log.keep_schema(topic_plan.latest.text)
            before = tables.get(topic)
            tables[topic] = next_state(topic_plan, before, number, _size(found.get(topic), before))
        files = [self._file(f) for m in manifests for f in m.files]
        per_table = {t: sum(f.table == t for f in files) for t in {f.table for f in files}}
        commit = Commit(
            number=number,
            created_ms=int(self._parts.now() * 1000),
            previous=log.checksum(last),
            offsets=offsets,
            tables=tables,
            topics={
                topic: _topic_commit(
                    found.get(topic),
                    plan.gaps.get(topic, []),
                    per_table.get(tables[topic].table, 0),
                )
                for topic in sorted({*found, *plan.gaps} & tables.keys())
            },
            files=files,
            quarantine=any(f.table == QUARANTINE_TABLE for f in files),
        )
        self._parts.reach("committing")
        log.create(commit)
        return commit

    def _file(self, f: StagedFile) -> CommitFile:
        return CommitFile(
            staged=str(Path(f.path).relative_to(self._parts.root)),
            target=f"{f.table}/datepartition={f.day}/{f.name}",
            table=f.table,
            day=f.day,
            rows=f.rows,
            bytes=f.bytes,
        )

    def _apply(self, commit: Commit) -> None:
        parts = self._parts
        apply(commit, parts.log, parts.root, parts.catalog, parts.publish, parts.reach)

    def _report(self, number: int, commit: Commit | None, plan: _Plan) -> LoadReport:
        topics = []
        for topic, found in (commit.topics if commit else {}).items():
            assert commit is not None
            state = commit.tables[topic]
            topics.append(
                TopicReport(
                    topic=topic,
                    table=state.table,
                    schema_version=state.version,
                    offsets={int(p): (a, b) for p, (a, b) in found.ranges.items()},
                    rows=found.rows,
                    files=found.files,
                    bytes=found.bytes,
                    quarantined=found.quarantined,
                    lost=found.lost,
                )
            )
        return LoadReport(
            number,
            tuple(topics),
            plan.governed.ungoverned,
            tuple(sorted(plan.refused, key=lambda r: r.topic)),
            dict(self._seconds),
        )

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        if self._progress is not None:
            self._progress(name)
        began = time.monotonic()
        yield
        self._seconds[name] = round(time.monotonic() - began, 3)


def _merged(manifests: Sequence[Manifest]) -> dict[str, list[TopicManifest]]:
    found: dict[str, list[TopicManifest]] = {}
    for manifest in manifests:
        for topic in manifest.topics:
            found.setdefault(topic.topic, []).append(topic)
    return found


def _check_covered(planned: Sequence[Range], found: Mapping[str, list[TopicManifest]]) -> None:
    """The tasks' ranges must be exactly the plan's, and hold no more messages than offsets."""
    covered = sorted(r for parts in found.values() for part in parts for r in part.ranges)
    joined: list[Range] = []
    for r in covered:
        last = joined[-1] if joined else None
        if last and (last.topic, last.partition, last.end) == (r.topic, r.partition, r.start):
            joined[-1] = Range(r.topic, r.partition, last.start, r.end)
        else:
            joined.append(r)
    messages = sum(p.rows + p.quarantined for parts in found.values() for p in parts)
    if joined != sorted(planned) or messages > sum(r.size for r in planned):
        raise CorruptError(
            "the tasks of the load did not read what was planned; nothing is committed",
            fix="load again",
        )


def _topic_commit(
    parts: Sequence[TopicManifest] | None, gaps: Sequence[Gap], files: int
) -> TopicCommit:
    parts = parts or ()
    ranges: dict[str, list[int]] = {}
    versions: dict[str, int] = {}
    windows: dict[str, dict[str, int]] = {}
    for part in parts:
        for r in part.ranges:
            known = ranges.setdefault(str(r.partition), [r.start, r.end])
            known[0], known[1] = min(known[0], r.start), max(known[1], r.end)
        for version, n in part.versions.items():
            versions[str(version)] = versions.get(str(version), 0) + n
        for window, counts in part.windows.items():
            sums = windows.setdefault(str(window), {"loaded": 0, "quarantined": 0, "bytes": 0})
            sums["loaded"] += counts.loaded
            sums["quarantined"] += counts.quarantined
            sums["bytes"] += counts.bytes
    firsts = [p.first_event for p in parts if p.first_event is not None]
    lasts = [p.last_event for p in parts if p.last_event is not None]
    return TopicCommit(
        ranges=ranges,
        rows=sum(p.rows for p in parts),
        bytes=sum(p.bytes for p in parts),
        quarantined=sum(p.quarantined for p in parts),
        lost=sum(gap.end - gap.start for gap in gaps),
        files=files,
        versions=versions,
        windows=windows,
        first_event=min(firsts, default=None),
        last_event=max(lasts, default=None),
    )


def _size(parts: Sequence[TopicManifest] | None, before: TableState | None) -> float:
    messages = sum(p.rows + p.quarantined for p in parts or ())
    if not messages:
        return before.record_bytes if before else 200.0
    return sum(p.bytes for p in parts or ()) / messages


def _as_range(topic: str, gap: Gap) -> Range:
    return Range(topic, gap.partition, gap.start, gap.end)
