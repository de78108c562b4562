"""The members of a group of the consumer protocol (KIP-848), and their heartbeats.

Rule: a member owns what it was told to read, and what it was told to stop reading and has not
confirmed yet. Nobody else gets these partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol
from uuid import UUID

from headworks._broker.groups.assignors import OwnedPartition
from headworks._kafka.error_codes import ErrorCode

JOINING_EPOCH = 0  # the epoch of a heartbeat that joins
LEAVING_EPOCH = -1  # that leaves
PAUSING_EPOCH = -2  # with which a static member leaves and keeps its place
NOTHING: frozenset[OwnedPartition] = frozenset()


class ConsumerGroupState(Enum):
    """The states of a group, with the names that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(Enum):
    """The reason why a member is not at its target yet, if it is not."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"  # it must confirm that it stopped reading some partitions
    UNRELEASED = "unreleased"  # others still own partitions that it will get


class TopicShape(Protocol):
    """A topic: its name, its id, and its number of partitions."""

    name: str
    topic_id: UUID

    @property
    def count(self) -> int:
        """The number of its partitions."""


class SubscribableTopics(Protocol):
    """The topics that exist now. `version` changes whenever one of them does."""

    version: int

    def named(self, name: str) -> TopicShape | None:
        """Return a topic by its name."""

    def matching(self, regex: str) -> frozenset[str]:
        """Return the names that a regular expression matches. InvalidPatternError."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupTimes:
    """Times of the protocol, in seconds."""

    session: float = 45.0  # of silence, after which a member is removed
    interval: float = 3.0  # between heartbeats
    waiting_interval: float = 0.5  # between heartbeats while it waits for partitions


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request. None: as in the last heartbeat. Times are in seconds."""

    member_id: str
    epoch: int
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: float | None = None
    topic_names: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[OwnedPartition] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the member sends everything, because it may have missed an answer."""
        if self.epoch == JOINING_EPOCH:
            return True
        subscribes = self.topic_names is not None or self.regex is not None
        return subscribes and self.rebalance_timeout is not None and self.owned is not None

    @property
    def size(self) -> int:
        """Bytes that the group keeps of this heartbeat."""
        texts = (self.member_id, self.client_id, self.instance_id, self.rack_id, self.regex)
        names = sum(map(len, self.topic_names or ()))
        return names + sum(len(text) for text in texts if text)


@dataclass(frozen=True, slots=True)
class ConsumerAnswer:
    """The answer to a heartbeat. `assigned` is None if it has not changed."""

    error: ErrorCode
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    interval: float = 0.0  # seconds until the next heartbeat
    assigned: frozenset[OwnedPartition] | None = None


@dataclass(frozen=True, slots=True)
class ClassicSupport:
    """The session timeout in seconds and the protocols of a member of the classic protocol."""

    session_timeout: float
    protocols: tuple[tuple[str, bytes], ...]  # names and metadata, the preferred first


@dataclass(slots=True)
class ConsumerGroupMember:
    """A member of a group; times in seconds."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    host: str = ""
    rebalance_timeout: float = 0.0
    topic_names: frozenset[str] = frozenset()  # to which it subscribes by name
    regex: str | None = None
    matched: frozenset[str] = frozenset()  # the names that its expression matches
    matched_at: int = -1  # the version of the topics at that time
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: frozenset[OwnedPartition] = NOTHING  # that it was told to read
    revoking: frozenset[OwnedPartition] = NOTHING  # that it must confirm to have stopped reading
    reported: frozenset[OwnedPartition] = NOTHING  # that it last said to read
    deadline: float = 0.0  # when its session times out
    act_by: float | None = None  # when it must have revoked, joined again, or synced
    classic: ClassicSupport | None = None  # if it speaks the classic protocol

    @property
    def subscription(self) -> frozenset[str]:
        """The names of the topics to which it subscribes."""
        return self.topic_names | self.matched

    @property
    def owned(self) -> frozenset[OwnedPartition]:
        """The partitions that nobody else may get."""
        return self.assigned | self.revoking

    def has_revoked(self, owned: frozenset[OwnedPartition] | None) -> bool:
        """Return whether it has stopped reading what it must, by a heartbeat after our answer.

        `owned` is what it reads; None: as it said last. A member that may have missed the answer
        may still start to read what an earlier one gave it, also if it does not read that yet.
        """
        if owned is None:
            return self.reported == self.assigned
        return not owned & self.revoking

    @property
    def order(self) -> str:
        """Its place among the members, which a static one keeps."""
        return self.instance_id or self.member_id

    @property
    def size(self) -> int:
        """Bytes of memory that its fields take."""
        texts = (self.member_id, self.client_id, self.instance_id, self.rack_id, self.regex)
        protocols = () if self.classic is None else self.classic.protocols
        return (
            sum(len(text) for text in texts if text)
            + sum(map(len, self.topic_names))
            + sum(len(name) + len(metadata) for name, metadata in protocols)
        )

    def move_to(self, epoch: int) -> None:
        """Take a new epoch, and remember the one before."""
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch


def refused_heartbeat(error: ErrorCode, beat: ConsumerHeartbeat) -> ConsumerAnswer:
    """Return the answer to a heartbeat that changes nothing."""
    return ConsumerAnswer(error, _MESSAGES.get(error), beat.member_id, beat.epoch)


_MESSAGES: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know this member; it must join again",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member has another epoch than the group gave it; it must"
    " stop reading all partitions and join again",
    ErrorCode.FENCED_INSTANCE_ID: "another member took over this group.instance.id",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member has this group.instance.id; close it, or wait"
    " for the end of its session",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as this broker allows",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the members of all groups take too much memory",
}
