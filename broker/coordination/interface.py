"""The interface of the coordination store: topics, committed offsets, and the other brokers.

Rules:

- Every method is asynchronous, so that the store may be remote. A property costs no request.
- When a method returns, its change is durable. Only committed offsets may lag behind a power cut,
  which repeats messages and never loses any. After UnreachableError, the change may or may not have
  happened.
- The assignment of partitions to brokers is part of a topic. A partition never moves.
- `lease_valid` is false as soon as another broker could hold this broker's id. The broker then
  leads no partition and coordinates no group until it is true again.
- A topic is deleted in two steps, so that a crash leaves no half. It is marked as `deleting`, and
  is never served again. Each of its brokers removes its files and reports that, and the last one
  forgets the topic. Until then the name stays taken.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID, uuid4

from headworks._broker.coordination.committed_offset import CommittedOffset
from headworks._broker.coordination.transaction_store import TransactionStore
from headworks.errors import RefusedError

PartitionKey = tuple[str, int]
# Returns the new configs of a topic for its present ones.
ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]

INTERNAL_ID_VERSION = 8  # RFC 9562 leaves its meaning to the program
_VERSION_BIT = 76  # where a UUID's integer has its version
_KAFKA_STORAGE_ERROR = 56  # its number in the protocol


class TopicExistsError(RefusedError):
    """A topic of that name exists already."""


class StoreFailureError(RefusedError):
    """The store could not write a change, for example because the disk is full."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=_KAFKA_STORAGE_ERROR)


def new_topic_id() -> UUID:
    """Return a random id (version 4), as Kafka makes them: printed, it does not start with '-'.

    Kafka's reserved ids are not of version 4.
    """
    while True:
        new = uuid4()
        if not urlsafe_b64encode(new.bytes).startswith(b"-"):
            return new


def new_internal_topic_id() -> UUID:
    """Return a random id for a topic that only the broker writes; it is of version 8."""
    bits = uuid4().int & ~(0xF << _VERSION_BIT)
    return UUID(int=bits | INTERNAL_ID_VERSION << _VERSION_BIT)


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A living broker, and the address for its clients."""

    broker: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the store has it."""

    name: str
    assignment: tuple[int, ...]  # the broker of each partition
    configs: Mapping[str, str] = field(default_factory=dict)  # those that differ from the defaults
    deleting: bool = False
    left: tuple[int, ...] = ()  # while deleting: the brokers that still have files of it
    topic_id: UUID = field(default_factory=lambda: new_topic_id())  # another one if it is recreated

    def of(self, broker: int) -> tuple[int, ...]:
        """Return the partitions of a broker."""
        return tuple(index for index, at in enumerate(self.assignment) if at == broker)


class Coordination(Protocol):
    """A coordination store."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which never changes."""

    @property
    def members(self) -> Mapping[int, ClusterMember]:
        """The living brokers, in order of their ids."""

    @property
    def lease_valid(self) -> bool:
        """Whether no other broker can hold this broker's id now."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call back in the event loop when members, topics or `sure` may have changed."""

    async def join(self, member: ClusterMember) -> None:
        """Register this broker, which serves its topics already."""

    async def leave(self) -> None:
        """Withdraw the registration of this broker."""

    async def topics(self) -> list[Topic]:
        """Return all topics, also those being deleted, with all changes of this broker."""

    async def read_topic(self, name: str) -> Topic | None:
        """Return one topic as it is now, whoever changed it. `topics` then returns it like that."""

    async def create_topic(self, topic: Topic) -> None:
        """Add a topic; TopicExistsError if the name is taken."""

    async def begin_delete(self, name: str) -> None:
        """Mark a topic as being deleted."""

    async def finish_delete(self, name: str) -> None:
        """Report that this broker removed its files; the last one forgets topic and offsets."""

    async def add_partitions(self, name: str, assignment: tuple[int, ...]) -> tuple[int, ...]:
        """Give a topic more partitions, and return its assignment.

        If another broker was faster, return the assignment that it made.
        """

    async def change_configs(self, name: str, change: ConfigChange) -> Mapping[str, str] | None:
        """Change the configs of a topic, and return the new ones; None if the topic is gone.

        If another broker changes them at the same time, `change` is called again, so that neither
        change is lost. If it raises, nothing has changed.
        """

    async def report_served(self, name: str, partitions: int) -> None:
        """Report how many partitions of a topic this broker serves."""

    async def wait_until_followed(self, name: str) -> None:
        """Wait some seconds for the other living brokers to follow a change of a topic."""

    async def allocate_producer_ids(self, count: int) -> int:
        """Return the first of `count` new producer ids."""

    async def skip_producer_ids(self, first: int) -> None:
        """Allocate no producer id below `first`: logs hold batches of those."""

    async def commit_offsets(
        self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], protocol_type: str = ""
    ) -> None:
        """Store committed offsets of a group, all or none (of some hundreds).

        An offset with a topic id is never an offset of another topic of that name.

        `protocol_type` is that of the group's members; empty if no member commits.
        """

    async def offsets(self, group: str) -> dict[PartitionKey, CommittedOffset]:
        """Return the committed offsets of a group in the topics that exist now."""

    async def groups(self) -> dict[str, str]:
        """Return the groups that have committed offsets, and the protocol type of each."""

    async def group_type(self, group: str) -> str | None:
        """Return the protocol type of a group, "" if it had no members; None without offsets."""

    async def has_members(self, group: str) -> bool:
        """Return whether a group has decentralized consumers now."""

    async def delete_offsets(self, group: str, keys: Iterable[PartitionKey] | None = None) -> None:
        """Delete committed offsets of a group: those of `keys`, or all."""

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The configs of the groups that have own ones."""

    async def change_group_configs(self, group: str, change: ConfigChange) -> None:
        """Change the configs of a group; no configs are those of a group without own ones.

        See `change_configs`.
        """

    @property
    def transactions(self) -> TransactionStore | None:
        """The transactions; None if this store has none, as that of a cluster."""

    async def close(self) -> None:
        """Close the store."""
