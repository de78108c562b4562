"""What a broker asks of its coordination store: topics, positions, and who else is there.

Rules:

- Every method is asynchronous, so that a store across the network fits; the caller holds no lock
  of a partition while it waits. What is a property is known already and costs nothing to ask.
- A method that returns has happened durably; committed offsets alone may lag behind a power cut
  (they then repeat messages, never lose them). UnreachableError: it may have happened or not.
- The assignment of a topic's partitions to brokers is part of the topic. A partition never moves.
- `sure` is false from the moment on at which another could be let in under this broker's id: it
  then answers as nobody's owner and coordinates no group, until it is sure again.
- Deleting a topic has two steps, so that a crash between them leaves no half: a topic that is
  `deleting` is never served again; each of its brokers removes its files and says so, and the last
  one forgets the topic. Until then the name stays taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headworks.errors import RefusedError

__all__ = [
    "ClusterMember",
    "CommittedOffset",
    "ConfigChange",
    "Coordination",
    "PartitionKey",
    "StoreFailureError",
    "Topic",
    "TopicExistsError",
]

PartitionKey = tuple[str, int]
# From a topic's own configs to what they shall be.
ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]

_STORAGE_ERROR = 56  # the protocol's number for it


class TopicExistsError(RefusedError):
    """A topic of that name is there already."""


class StoreFailureError(RefusedError):
    """What is to be kept could not be written, as on a full disk: nothing has changed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=_STORAGE_ERROR)


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A living broker, and where clients reach it."""

    broker: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: the broker of each partition, and the configs that differ from the defaults.

    `left`: while it is deleted, the brokers that have still to remove their part.
    """

    name: str
    assignment: tuple[int, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    left: tuple[int, ...] = ()

    def of(self, broker: int) -> tuple[int, ...]:
        """The partitions that a broker has."""
        return tuple(index for index, at in enumerate(self.assignment) if at == broker)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's position in a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Coordination(Protocol):
    """The store."""

    @property
    def cluster_id(self) -> str:
        """A name for the whole that never changes."""

    @property
    def members(self) -> Mapping[int, ClusterMember]:
        """The living brokers, in order of their ids."""

    @property
    def lease_valid(self) -> bool:
        """Whether nobody else can have been let in under this broker's id."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call back in the event loop when members, topics or `sure` may have changed."""

    async def join(self, member: ClusterMember) -> None:
        """Tell everybody that this broker serves; its topics are served already."""

    async def leave(self) -> None:
        """Tell everybody that this broker goes."""

    async def topics(self) -> list[Topic]:
        """All topics, those that are being deleted too; what this broker changed is in it."""

    async def read_topic(self, name: str) -> Topic | None:
        """One topic as it is now, whoever changed it; `topics` has it so from then on."""

    async def create_topic(self, topic: Topic) -> None:
        """Add a topic; TopicExistsError if the name is taken."""

    async def begin_delete(self, name: str) -> None:
        """Mark a topic as being deleted."""

    async def finish_delete(self, name: str) -> None:
        """This broker has removed its part: when all have, forget topic and offsets in it."""

    async def add_partitions(self, name: str, assignment: tuple[int, ...]) -> tuple[int, ...]:
        """Give a topic more partitions; returns the assignment that it has then.

        If another was faster, that is another's.
        """

    async def change_configs(self, name: str, change: ConfigChange) -> Mapping[str, str] | None:
        """Change a topic's configs from what they are now; what they are then, None if it is gone.

        `change` is asked again if somebody else was faster, so that neither change is lost. What
        it raises goes through, and nothing has changed.
        """

    async def report_served(self, name: str, partitions: int) -> None:
        """This broker serves so many partitions of a topic from now on."""

    async def wait_until_followed(self, name: str) -> None:
        """Wait, within limits, until the topic's other living brokers have followed a change."""

    async def allocate_producer_ids(self, count: int) -> int:
        """The first of `count` producer ids that nobody ever had."""

    async def commit_offsets(
        self, group: str, offsets: Mapping[PartitionKey, CommittedOffset]
    ) -> None:
        """Store a group's positions, all or none (of some hundreds)."""

    async def offsets(self, group: str) -> dict[PartitionKey, CommittedOffset]:
        """All positions of a group."""

    async def groups(self) -> list[str]:
        """Groups that have positions."""

    async def has_offsets(self, group: str) -> bool:
        """Whether a group has positions."""

    async def has_members(self, group: str) -> bool:
        """Whether consumers that coordinate themselves are in the group now."""

    async def delete_offsets(self, group: str, keys: Iterable[PartitionKey] | None = None) -> None:
        """Forget a group's positions: those of `keys`, or all."""

    async def close(self) -> None:
        """Let go of the store."""
