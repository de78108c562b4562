"""What a broker asks of its coordination store.

Rules:

- Every method is asynchronous, so that a store across the network fits; the caller holds no lock
  while it waits.
- A method that returns has happened durably; committed offsets alone may lag behind a power cut
  (they then repeat messages, never lose them).
- Deleting a topic has two steps, so that a crash between them leaves no half: a topic that is
  `deleting` is never served again, and its files are removed before it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headworks.errors import RefusedError

__all__ = ["Committed", "Coordination", "PartitionKey", "Topic", "TopicExistsError"]

PartitionKey = tuple[str, int]


class TopicExistsError(RefusedError):
    """A topic of that name is there already."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its partition count, and the configs that differ from the defaults."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's position in a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Coordination(Protocol):
    """The store."""

    @property
    def cluster_id(self) -> str:
        """A name for the whole that never changes."""

    async def topics(self) -> list[Topic]:
        """All topics, those that are being deleted too."""

    async def create_topic(self, topic: Topic) -> None:
        """Add a topic; TopicExistsError if the name is taken."""

    async def begin_delete(self, name: str) -> None:
        """Mark a topic as being deleted."""

    async def finish_delete(self, name: str) -> None:
        """Forget a topic and every group's offsets in it."""

    async def set_partitions(self, name: str, count: int) -> None:
        """Change a topic's partition count."""

    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's configs."""

    async def allocate_producer_ids(self, count: int) -> int:
        """The first of `count` producer ids that nobody ever had."""

    async def commit_offsets(self, group: str, offsets: Mapping[PartitionKey, Committed]) -> None:
        """Store a group's positions, all or none."""

    async def offsets(self, group: str) -> dict[PartitionKey, Committed]:
        """All positions of a group."""

    async def groups(self) -> list[str]:
        """Groups that have positions."""

    async def forget_offsets(self, group: str, keys: Iterable[PartitionKey] | None = None) -> None:
        """Forget a group's positions: those of `keys`, or all."""

    async def close(self) -> None:
        """Let go of the store."""
