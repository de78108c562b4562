"""The results of all tasks of a load, checked against the plan and summed by topic. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from hadoop_loader._commit.commit_record import TopicCommit
from hadoop_loader._commit.policy import QuarantineLimit
from hadoop_loader._fetch.ranges import FetchRange, OffsetGap
from hadoop_loader._tasks.load_task import TaskManifest, TopicManifest
from headworks.errors import CorruptError, FindingsError

ResultsByTopic = dict[str, list[TopicManifest]]
LoadedCounts = dict[str, dict[str, int]]


def group_by_topic(manifests: Iterable[TaskManifest]) -> ResultsByTopic:
    """Group the results of tasks by topic."""
    found: ResultsByTopic = {}
    for manifest in manifests:
        for topic in manifest.topics:
            found.setdefault(topic.topic, []).append(topic)
    return found


def without_topics(manifest: TaskManifest, topics: Container[str]) -> TaskManifest:
    """Return the results of a task without these topics."""
    return replace(
        manifest,
        files=tuple(file for file in manifest.files if file.topic not in topics),
        topics=tuple(found for found in manifest.topics if found.topic not in topics),
    )


def check_coverage(
    planned: Sequence[FetchRange], found: Mapping[str, Sequence[TopicManifest]]
) -> None:
    """Raise CorruptError unless the tasks read exactly the planned ranges.

    They may not count more messages than the ranges have offsets.
    """
    covered = sorted(r for parts in found.values() for part in parts for r in part.ranges)
    joined: list[FetchRange] = []
    for r in covered:
        last = joined[-1] if joined else None
        if last and (last.topic, last.partition, last.end) == (r.topic, r.partition, r.start):
            joined[-1] = FetchRange(r.topic, r.partition, last.start, r.end)
        else:
            joined.append(r)
    messages = sum(p.rows + p.quarantined for parts in found.values() for p in parts)
    if joined != sorted(planned) or messages > sum(r.size for r in planned):
        raise CorruptError(
            "the tasks of the load did not read what was planned; nothing is committed",
            fix="load again",
        )


def check_quarantine_limit(
    topic: str, parts: Sequence[TopicManifest], limit: QuarantineLimit | None
) -> None:
    """Raise FindingsError if a topic has more bad messages than the limit allows."""
    rows, bad = sum(p.rows for p in parts), sum(p.quarantined for p in parts)
    if limit is None or not limit.exceeded_by(rows, bad):
        return
    first = next(p.first_bad for p in parts if p.first_bad)
    raise FindingsError(
        f"{bad:,} of {rows + bad:,} new messages of {topic} are bad, more than {limit}: the first "
        f"is {first}",
        fix="mend what writes them, or register the schema they lack; or let them into the "
        "quarantine table with --quarantine-limit none",
    )


def topic_commit(
    parts: Sequence[TopicManifest],
    files: int,
    *,
    gaps: Sequence[OffsetGap] = (),
    instead: LoadedCounts | None = None,
) -> TopicCommit:
    """Return the record of one topic.

    `instead`: counts by window of the rows that the new ones replace. The counts are then net, and
    bytes are 0, because the same messages were counted before.
    """
    ranges: dict[str, list[int]] = {}
    versions: dict[str, int] = {}
    for part in parts:
        for r in filter(lambda r: r.size, part.ranges):
            known = ranges.setdefault(str(r.partition), [r.start, r.end])
            known[0], known[1] = min(known[0], r.start), max(known[1], r.end)
        for version, n in part.versions.items():
            versions[str(version)] = versions.get(str(version), 0) + n
    lost = sum(gap.end - gap.start for gap in gaps)
    windows = _sum_windows(parts)
    for window, counts in (instead or {}).items():
        for outcome, n in counts.items():
            _counts_of(windows, window)[outcome] -= n
    if instead is not None:
        for counts in windows.values():
            counts["bytes"] = 0
    firsts = [p.first_event for p in parts if p.first_event is not None]
    lasts = [p.last_event for p in parts if p.last_event is not None]
    return TopicCommit(
        ranges=ranges,
        rows=sum(counts["loaded"] for counts in windows.values()),
        bytes=sum(p.bytes for p in parts),
        quarantined=sum(counts["quarantined"] for counts in windows.values()),
        lost=lost,
        files=files,
        versions=versions,
        windows=windows,
        first_event=min(firsts, default=None),
        last_event=max(lasts, default=None),
        damaged=sum(one.size for part in parts for one in part.damaged),
    )


def mean_record_bytes(parts: Sequence[TopicManifest], before: float) -> float:
    """Return the mean size of a message in bytes, or `before` if there are none."""
    messages = sum(p.rows + p.quarantined for p in parts)
    return sum(p.bytes for p in parts) / messages if messages else before


def _sum_windows(parts: Sequence[TopicManifest]) -> LoadedCounts:
    windows: LoadedCounts = {}
    for part in parts:
        for window, counts in part.windows.items():
            sums = _counts_of(windows, window)
            sums["loaded"] += counts.loaded
            sums["quarantined"] += counts.quarantined
            sums["bytes"] += counts.bytes
    return windows


def _counts_of(windows: LoadedCounts, start: int | str) -> dict[str, int]:
    return windows.setdefault(str(start), {"loaded": 0, "quarantined": 0, "bytes": 0})
