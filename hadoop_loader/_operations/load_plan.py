"""The plan of a load: ranges, gaps, and everything that it leaves out, with the reason.

Rule: what is left out is told, and stands where it was; a topic that is left has no other part in
the load.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.report import SkippedTopic, TaskReport, UnreadPartitions
from hadoop_loader._commit.topic_plans import TopicPlans
from hadoop_loader._fetch.damage import DamagedRange, cut_ranges, damage_error
from hadoop_loader._fetch.log_identity import LogIdentity
from hadoop_loader._fetch.ranges import FetchRange, OffsetGap, no_leader_error
from headworks._kafka.damaged_batch import DamagedBatch

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadPlan:
    """Everything that a load is going to do."""

    topics: TopicPlans
    ranges: list[FetchRange] = field(default_factory=list)  # the new messages
    gaps: dict[str, list[OffsetGap]] = field(
        default_factory=dict
    )  # lost messages to skip, by topic
    refused: list[SkippedTopic] = field(default_factory=list)
    leaderless: list[UnreadPartitions] = field(default_factory=list)
    damaged: list[UnreadPartitions] = field(default_factory=list)
    evolved: list[str] = field(default_factory=list)  # topics with a new schema
    tasks: list[TaskReport] = field(default_factory=list)  # set once they have run
    identity: LogIdentity = field(default_factory=LogIdentity)  # read before the end offsets
    reborn: set[str] = field(default_factory=set)  # topics that were made again

    def skip_topic(self, topic: str, reason: str) -> None:
        """Leave a topic as it is, and report why."""
        self.refused.append(SkippedTopic(topic, reason))
        self._remove(topic)

    def leave_topic(self, topic: str, away: Sequence[int], last: Commit | None) -> None:
        """Leave a topic as it is, because partitions lost their leaders while they were read."""
        known = {p for one in self.leaderless if one.topic == topic for p in one.offsets}
        self._remove(topic)
        self.skip_partitions(topic, sorted({*away, *known}), last)

    def _remove(self, topic: str) -> None:
        self.ranges = [r for r in self.ranges if r.topic != topic]
        self.leaderless = [one for one in self.leaderless if one.topic != topic]
        self.damaged = [one for one in self.damaged if one.topic != topic]
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
        self.leaderless.append(UnreadPartitions(topic, offsets, str(error)))

    def end_before(self, damaged: Collection[DamagedRange]) -> None:
        """End each partition before its first damaged batch, and report it."""
        self.ranges = cut_ranges(self.ranges, damaged)
        first = {(one.topic, one.partition): one for one in sorted(damaged, reverse=True)}
        for topic in sorted({one.topic for one in damaged}):
            found = [one for one in sorted(first.values()) if one.topic == topic]
            offsets: dict[int, int | None] = {one.partition: one.start for one in found}
            at = DamagedBatch(topic, found[0].partition, found[0].start, found[0].reason)
            error = damage_error(at)
            for one in found:
                _LOG.error(
                    "%s[%d] is loaded up to a damaged batch at offset %d: %s",
                    topic,
                    one.partition,
                    one.start,
                    one.reason,
                    extra={"topic": topic, "partition": one.partition, "offset": one.start},
                )
            known = [one for one in self.damaged if one.topic != topic]
            self.damaged = [*known, UnreadPartitions(topic, offsets, str(error))]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.ranges and not self.evolved and not self.gaps
