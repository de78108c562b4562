"""What a consumer group looks like from outside: its kind, its members, how far it is.

Rules:

- `lag` is what lies between the group's position and the end of the log; where the group has no
  position and messages are there it is None, because nobody but the group's next member knows
  where it will begin.
- `behind_ms` is the age of the next unread message (its record timestamp against now): 0 when
  nothing is unread, None when it could not be found out in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = [
    "GroupDescription",
    "GroupKind",
    "GroupListing",
    "GroupPosition",
    "MemberDescription",
    "PartitionOffset",
    "TopicPartition",
]


class GroupKind(StrEnum):
    """Who balances a group: a broker (Kafka's group protocol), or its members over ZooKeeper."""

    CLASSIC = "classic"
    DECENTRALIZED = "decentralised"


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class PartitionOffset(NamedTuple):
    """An offset in a partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; `active`: somebody is in it."""

    name: str
    kind: GroupKind
    active: bool
    state: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member, and what it reads."""

    name: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """How far a group is in a partition; `owner` is the member that reads it, if one does."""

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    behind_ms: int | None
    owner: str | None

    @property
    def lag(self) -> int | None:
        """Messages that are there and unread; what retention removed is not counted."""
        if self.end is None or self.start is None:
            return None
        if self.committed is None:
            return 0 if self.start == self.end else None
        return max(0, self.end - max(self.committed, self.start))

    @property
    def next_unread(self) -> PartitionOffset | None:
        """Where the group goes on, if something is there."""
        if not self.lag or self.committed is None or self.start is None:
            return None
        return PartitionOffset(self.topic, self.partition, max(self.committed, self.start))

    def as_json(self) -> dict[str, Any]:
        """The position as commands print it."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed,
            "start": self.start,
            "end": self.end,
            "lag": self.lag,
            "behind_ms": self.behind_ms,
            "owner": self.owner,
        }


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: what it is, who is in it, how far it is."""

    name: str
    kind: GroupKind
    active: bool
    state: str
    members: tuple[MemberDescription, ...]
    positions: tuple[GroupPosition, ...]

    @property
    def lag(self) -> int:
        """Unread messages in all partitions where that is known."""
        return sum(position.lag or 0 for position in self.positions)

    @property
    def unknown(self) -> int:
        """Partitions whose lag is not known: the group has no position there, or nobody answers."""
        return sum(position.lag is None for position in self.positions)

    @property
    def behind_ms(self) -> int | None:
        """The age of its oldest unread message; None if that of a lagging partition is unknown."""
        ages = [position.behind_ms for position in self.positions if position.lag]
        if None in ages:
            return None
        return max((age for age in ages if age is not None), default=0)

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """The committed offsets."""
        return {
            TopicPartition(p.topic, p.partition): p.committed
            for p in self.positions
            if p.committed is not None
        }

    def as_json(self) -> dict[str, Any]:
        """The group as commands print it."""
        return {
            "group": self.name,
            "kind": self.kind.value,
            "active": self.active,
            "state": self.state,
            "lag": self.lag,
            "unknown": self.unknown,
            "behind_ms": self.behind_ms,
            "members": [
                {
                    "member": member.name,
                    "host": member.host,
                    "partitions": [place._asdict() for place in member.partitions],
                }
                for member in self.members
            ],
            "positions": [position.as_json() for position in self.positions],
        }
