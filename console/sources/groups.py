"""The consumer groups: members, lag in messages and in time, and the recent course of the lag.

Rules:

- `headworks.groups` describes all groups together, in the background.
- Only numbers are kept of earlier samples: the positions of two minutes, the lag of the last
  readings, and the time at which each group's state was first seen.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException

from headworks._console.sources.group_state import (
    TREND_SECONDS,
    GroupSample,
    GroupState,
    group_state,
)
from headworks._console.sources.topics import broker_unreachable
from headworks.groups import GroupDescription, Groups

_MAX_SAMPLES = 120
_MAX_LAGS = 120


@dataclass(frozen=True, slots=True)
class StateSince:
    """The time at which a state was first seen; `earlier`: the console's first reading saw it."""

    at_ms: int
    earlier: bool


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group and its state; `lags` are oldest first."""

    group: GroupDescription
    topics: tuple[str, ...]
    state: GroupState
    because: str
    since: StateSince
    lags: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GroupsSnapshot:
    """All groups by name, and the names of those with committed offsets in a topic."""

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
        calendar: Callable[[], float] = time.time,
    ) -> None:
        self._bootstrap = bootstrap
        self._zookeeper = zookeeper
        self._clock = clock
        self._calendar = calendar
        self._groups: Groups | None = None
        self._samples: dict[str, deque[GroupSample]] = {}  # the last samples by group
        self._lags: dict[str, deque[float]] = {}  # the last lags by group
        self._rows: Mapping[str, GroupRow] | None = None  # of the last reading

    def __call__(self) -> GroupsSnapshot:
        """Read all groups. Raises UnreachableError if the broker or ZooKeeper does not answer."""
        if self._groups is None:
            self._groups = Groups(self._bootstrap, self._zookeeper)
        try:
            found = self._groups.described(age_timeout=2.0)
        except KafkaException as error:
            raise broker_unreachable(self._bootstrap, error) from None
        now = self._clock()
        rows = {one.name: self._row(one, now) for one in found}
        self._samples = {name: self._samples[name] for name in rows}
        self._lags = {name: self._lags[name] for name in rows}
        self._rows = rows
        by_topic: dict[str, list[str]] = {}
        for name, row in rows.items():
            for topic in row.topics:
                by_topic.setdefault(topic, []).append(name)
        return GroupsSnapshot(rows, {topic: tuple(names) for topic, names in by_topic.items()})

    def _row(self, group: GroupDescription, now: float) -> GroupRow:
        positions = {
            (p.topic, p.partition): (p.committed, p.lag or 0)
            for p in group.positions
            if p.committed is not None
        }
        kept = self._samples.setdefault(group.name, deque(maxlen=_MAX_SAMPLES))
        sample = GroupSample(now, group.active, positions)
        kept.append(sample)
        while len(kept) > 1 and kept[1].at < now - TREND_SECONDS:  # one before them is kept
            kept.popleft()
        lags = self._lags.setdefault(group.name, deque(maxlen=_MAX_LAGS))
        lags.append(float(sample.lag))
        state, because = group_state(tuple(kept))
        topics = tuple(sorted({topic for topic, _ in positions}))
        since = state_since(self._rows, group.name, state, 1000 * int(self._calendar()))
        return GroupRow(group, topics, state, because, since, tuple(lags))


def state_since(
    before: Mapping[str, GroupRow] | None, name: str, state: GroupState, now_ms: int
) -> StateSince:
    """Return since when a group has its state. `before` is the last reading, None at the first."""
    row = before.get(name) if before is not None else None
    return row.since if row and row.state is state else StateSince(now_ms, before is None)
