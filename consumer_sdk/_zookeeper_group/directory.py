"""A group's directories in ZooKeeper: members, owners of partitions, and offsets.

Rules:

- Claims and offsets are written in a transaction that checks the member's own node. The name of
  that node is new in every session. ZooKeeper therefore rejects a write after the session has
  ended, even if the client has a new session by then.
- Many nodes are read and written at once, never one after the other.
- An offset belongs to the id of its topic. A topic that was deleted and created again under its
  name is another claim, and has no offsets.
- kazoo's exceptions pass through: the member decides what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from consumer_sdk._zookeeper_group.assignment import BrokerPartition
from headworks._zookeeper import MemberNode, OffsetNode, TopicNode, ZooKeeperSession, paths
from headworks._zookeeper.session import kazoo

_MAX_OPERATIONS = 200
_TIMEOUT_SECONDS = 15.0


class RegisteredPartition(NamedTuple):
    """A partition of a topic, and the broker that stores it, as ZooKeeper registers it."""

    topic: str
    broker_partition: BrokerPartition
    topic_id: UUID | None = None  # None: of a release that had no topic ids


class NotAMemberError(Exception):
    """The member's node is missing: its session has ended."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The state that an assignment depends on: members, living brokers, and topics."""

    members: Mapping[str, MemberNode]
    brokers: frozenset[int]
    topics: frozenset[str]


class GroupDirectory:
    """The directories of `group`; `writes` counts the nodes written, created, and deleted."""

    def __init__(self, session: ZooKeeperSession, group: str) -> None:
        self._client = session.client
        self._group = group
        self._errors = kazoo("exceptions")
        self._prepared: set[str] = set()
        self.writes = 0

    def join(self, member: str, node: MemberNode) -> None:
        """Register a member for as long as the session lasts."""
        self._client.ensure_path(paths.members(self._group))
        self._client.create(paths.member(self._group, member), node.dump(), ephemeral=True)
        self.writes += 1

    def renew(self, member: str, node: MemberNode) -> bool:
        """Write a member's own node again; false if it is gone. `writes` does not count it."""
        try:
            self._client.set(paths.member(self._group, member), node.dump())
        except self._errors.NoNodeError:
            return False
        return True

    def view(self, watch: Callable[[Any], None]) -> GroupView:
        """Return the members, brokers, and topics; `watch` is called when they change."""
        for path in (paths.BROKERS, paths.TOPICS):
            self._prepare(path)
        ids, brokers, topics = (
            self._client.get_children(path, watch=watch)
            for path in (paths.members(self._group), paths.BROKERS, paths.TOPICS)
        )
        nodes = self._values(
            [f"{paths.members(self._group)}/{name}" for name in ids], self._client.get_async
        )
        return GroupView(
            {
                paths.name_of(path.rpartition("/")[2]): MemberNode.load(value, path)
                for path, value in nodes.items()
            },
            frozenset(int(name) for name in brokers if name.isdigit()),
            frozenset(paths.name_of(name) for name in topics),
        )

    def partitions(
        self, topics: Iterable[str], brokers: frozenset[int], watch: Callable[[Any], None]
    ) -> tuple[dict[str, list[BrokerPartition]], dict[str, UUID | None]]:
        """Return the partitions of topics on living brokers, and the ids of these topics.

        `watch` is called as for `view`.
        """
        by_path = {paths.topic(topic): topic for topic in topics}
        nodes = self._values(by_path, lambda path: self._client.get_async(path, watch=watch))
        found, ids = {}, {}
        for path, value in nodes.items():
            node = TopicNode.load(value, path)
            if not node.deleting:
                ids[by_path[path]] = node.topic_id
                found[by_path[path]] = [
                    BrokerPartition(broker, number)
                    for number, broker in enumerate(node.assignment)
                    if broker in brokers
                ]
        return found, ids

    def claim(
        self, member: str, partitions: Iterable[RegisteredPartition], watch: Callable[[Any], None]
    ) -> tuple[list[RegisteredPartition], dict[RegisteredPartition, str]]:
        """Claim partitions; return those that `member` owns now, and the owners of the others.

        `watch` is called when one of the others becomes free. NotAMemberError if the member's node
        is missing.
        """
        asked = []
        for partition in partitions:
            path = self._owner(partition)
            self._prepare(path.rpartition("/")[0])
            change = self._client.transaction()
            change.check(paths.member(self._group, member), -1)
            change.create(path, member.encode(), ephemeral=True)
            asked.append((partition, path, change.commit_async()))
        ours, others = [], {}
        for partition, path, answer in asked:
            checked, created = answer.get(timeout=_TIMEOUT_SECONDS)
            if isinstance(checked, self._errors.NoNodeError):
                raise NotAMemberError(member)
            if not isinstance(created, Exception):
                ours.append(partition)
                self.writes += 1
                continue
            if not isinstance(created, self._errors.NodeExistsError):
                raise created
            owner = self._owner_at(path, watch)
            if owner == member:
                ours.append(partition)  # the answer to an earlier claim was lost
            else:
                others[partition] = owner
        return ours, others

    def release(self, member: str, partitions: Iterable[RegisteredPartition]) -> None:
        """Delete the claims of partitions; NotAMemberError if the member's node is missing."""
        answers = []
        for partition in partitions:
            change = self._client.transaction()
            change.check(paths.member(self._group, member), -1)
            change.delete(self._owner(partition))
            answers.append(change.commit_async())
        for answer in answers:
            checked, _ = answer.get(timeout=_TIMEOUT_SECONDS)
            if isinstance(checked, self._errors.NoNodeError):
                raise NotAMemberError(member)
            self.writes += 1

    def offsets(self, partitions: Iterable[RegisteredPartition]) -> dict[RegisteredPartition, int]:
        """Return the group's committed offsets in partitions, if it has one there.

        An offset of an earlier topic of the same name does not count.
        """
        by_path = {self._offset(partition): partition for partition in partitions}
        found = {}
        for path, value in self._values(by_path, self._client.get_async).items():
            node = OffsetNode.load(value, path) if value else None
            known = by_path[path].topic_id
            if node is not None and (known is None or node.topic_id in (None, known)):
                found[by_path[path]] = node.offset
        return found

    def commit(self, member: str, offsets: Mapping[RegisteredPartition, int]) -> None:
        """Commit offsets, each transaction all or nothing; NotAMemberError as for `release`."""
        items = sorted(offsets.items(), key=lambda item: item[0][:2])
        for first in range(0, len(items), _MAX_OPERATIONS):
            self._commit(member, items[first : first + _MAX_OPERATIONS], again=True)

    def _commit(
        self, member: str, items: list[tuple[RegisteredPartition, int]], *, again: bool
    ) -> None:
        values = {
            self._offset(partition): OffsetNode(offset, topic_id=partition.topic_id).dump()
            for partition, offset in items
        }
        known = self._values(values, self._client.exists_async)
        change = self._client.transaction()
        change.check(paths.member(self._group, member), -1)
        for path, value in values.items():
            if path in known:
                change.set_data(path, value)
            else:
                self._prepare(path.rpartition("/")[0])
                change.create(path, value)
        checked, *written = change.commit_async().get(timeout=_TIMEOUT_SECONDS)
        if isinstance(checked, self._errors.NoNodeError):
            raise NotAMemberError(member)
        failed = next((one for one in written if isinstance(one, Exception)), None)
        if failed is not None:
            self._prepared.clear()  # a directory was removed, with its topic: it is made again
            if not again:
                raise failed
            self._commit(member, items, again=False)
            return
        self.writes += len(values)

    def _owner(self, partition: RegisteredPartition) -> str:
        return paths.owner(self._group, partition.topic, *partition.broker_partition)

    def _offset(self, partition: RegisteredPartition) -> str:
        return paths.offset(self._group, partition.topic, *partition.broker_partition)

    def _owner_at(self, path: str, watch: Callable[[Any], None]) -> str:
        try:
            value, _ = self._client.get(path, watch=watch)
        except self._errors.NoNodeError:
            watch(None)  # it is free already
            return ""
        return str(value.decode())

    def _prepare(self, path: str) -> None:
        if path not in self._prepared:
            self._client.ensure_path(path)
            self._prepared.add(path)

    def _values(self, nodes: Iterable[str], ask: Callable[[str], Any]) -> dict[str, Any]:
        """Return the values of the nodes that exist (for `exists_async`: their metadata)."""
        answers = [(path, ask(path)) for path in nodes]
        found = {}
        for path, answer in answers:
            try:
                told = answer.get(timeout=_TIMEOUT_SECONDS)
            except self._errors.NoNodeError:
                continue
            if told is not None:
                found[path] = told[0]
        return found
