"""The consumer groups: members, lag in messages and in time, and how the lag has gone lately.

Rules: all groups are described together, in the background, by `headworks.groups`; what they did
over the last readings is kept as numbers only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException

from headworks._console.sources.group_state import Sample, State, judge
from headworks._console.sources.topics import broker_silent
from headworks.groups import Group, Groups

__all__ = ["GroupReader", "GroupRow", "GroupsKnown"]

_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group and the verdict on it; `lags` oldest first."""

    group: Group
    topics: tuple[str, ...]
    state: State
    because: str
    lags: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GroupsKnown:
    """All groups by name, and the names of those that committed in a topic."""

    rows: Mapping[str, GroupRow]
    by_topic: Mapping[str, tuple[str, ...]]


class GroupReader:
    """Reads the groups of a broker, and of ZooKeeper if its address is given."""

    def __init__(
        self,
        bootstrap: str,
        zookeeper: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bootstrap = bootstrap
        self._zookeeper = zookeeper
        self._clock = clock
        self._groups: Groups | None = None
        self._samples: dict[str, deque[Sample]] = {}

    def __call__(self) -> GroupsKnown:
        """Read now; UnreachableError if the broker (or ZooKeeper) does not answer."""
        if self._groups is None:
            self._groups = Groups(self._bootstrap, self._zookeeper)
        try:
            found = self._groups.described(age_timeout=2.0)
        except KafkaException as error:
            raise broker_silent(self._bootstrap, error) from None
        now = self._clock()
        rows = {one.name: self._row(one, now) for one in found}
        self._samples = {name: self._samples[name] for name in rows}
        by_topic: dict[str, list[str]] = {}
        for name, row in rows.items():
            for topic in row.topics:
                by_topic.setdefault(topic, []).append(name)
        return GroupsKnown(rows, {topic: tuple(names) for topic, names in by_topic.items()})

    def _row(self, group: Group, now: float) -> GroupRow:
        positions = {
            (p.topic, p.partition): (p.committed, p.lag or 0)
            for p in group.positions
            if p.committed is not None
        }
        kept = self._samples.setdefault(group.name, deque(maxlen=_SAMPLES))
        kept.append(Sample(now, group.active, positions))
        state, because = judge(kept)
        topics = tuple(sorted({topic for topic, _ in positions}))
        lags = tuple(float(sample.lag) for sample in kept)
        return GroupRow(group, topics, state, because, lags)
