"""The description of a consumer group: its kind, its members, its offsets, and its lag.

Rules:

- `lag` is the number of messages between the committed offset and the log end offset. If the group
  has no committed offset and the log has messages, it is None: only the group's next member decides
  where it begins.
- `behind_ms` is the age of the next unread message, from its record timestamp to now. It is 0 if
  nothing is unread, and None if the message could not be read in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class GroupKind(StrEnum):
    """The side that balances a group: a broker (classic), or its members over ZooKeeper."""

    CLASSIC = "classic"
    DECENTRALIZED = "decentralized"


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
    """A group in a list; `active` says whether it has members."""

    name: str
    kind: GroupKind
    active: bool
    state: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member, and the partitions that it reads."""

    name: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """The offsets of a group in a partition; `owner` is the member that reads it, if any."""

    topic: str
    partition: int
    committed: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    behind_ms: int | None
    owner: str | None

    @property
    def lag(self) -> int | None:
        """The number of unread messages, without those that retention has removed."""
        if self.log_end_offset is None or self.log_start_offset is None:
            return None
        if self.committed is None:
            return 0 if self.log_start_offset == self.log_end_offset else None
        return max(0, self.log_end_offset - max(self.committed, self.log_start_offset))

    @property
    def next_unread(self) -> PartitionOffset | None:
        """The offset at which the group continues; None if nothing is unread or it is unknown."""
        if not self.lag or self.committed is None or self.log_start_offset is None:
            return None
        return PartitionOffset(
            self.topic, self.partition, max(self.committed, self.log_start_offset)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the position as commands print it."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed,
            "start": self.log_start_offset,
            "end": self.log_end_offset,
            "lag": self.lag,
            "behind_ms": self.behind_ms,
            "owner": self.owner,
        }


def position_of(
    partition: TopicPartition, committed: int | None = None, owner: str | None = None
) -> GroupPosition:
    """Return a position whose log is not known yet."""
    return GroupPosition(*partition, committed, None, None, None, owner)


def positions_of(
    owners: Mapping[TopicPartition, str], offsets: Mapping[TopicPartition, int]
) -> tuple[GroupPosition, ...]:
    """Return the positions in all partitions that have an owner or a committed offset."""
    return tuple(
        position_of(partition, offsets.get(partition), owners.get(partition))
        for partition in sorted(owners.keys() | offsets.keys())
    )


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members, and its positions."""

    name: str
    kind: GroupKind
    active: bool
    state: str
    members: tuple[MemberDescription, ...]
    positions: tuple[GroupPosition, ...]

    @property
    def lag(self) -> int:
        """The number of unread messages in all partitions whose lag is known."""
        return sum(position.lag or 0 for position in self.positions)

    @property
    def unknown(self) -> int:
        """The number of partitions whose lag is unknown: no committed offset, or no leader."""
        return sum(position.lag is None for position in self.positions)

    @property
    def behind_ms(self) -> int | None:
        """The age of the oldest unread message; None if a lagging partition's is unknown."""
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
        """Return the group as commands print it."""
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
