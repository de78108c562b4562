"""A group's directories in ZooKeeper: members, who owns which partition, positions.

Rules:

- Claims and positions are written in a transaction that holds only while the member's own node
  stands. The node's name is new in every session, so what a member writes after its session has
  ended is refused by ZooKeeper, even when the client has got a new session meanwhile.
- Many nodes are asked for and written at once, never one after the other.
- kazoo's exceptions go through: the member decides what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from consumer_sdk._zookeeper_group.assignment import BrokerPartition
from headworks._zookeeper import MemberNode, OffsetNode, TopicNode, ZooKeeperSession, paths
from headworks._zookeeper.session import kazoo

__all__ = ["GroupDirectory", "GroupView", "NotAMemberError", "RegisteredPartition"]

_MAX_OPERATIONS = 200
_TIMEOUT_SECONDS = 15.0


class RegisteredPartition(NamedTuple):
    """A partition of a topic, with the broker that has it."""

    topic: str
    broker_partition: BrokerPartition


class NotAMemberError(Exception):
    """The member's node is gone: its session has ended."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """What a member sees: who is in the group, which brokers live, which topics there are."""

    members: Mapping[str, MemberNode]
    brokers: frozenset[int]
    topics: frozenset[str]


class GroupDirectory:
    """The directories of `group`; `writes` counts the nodes written, created and deleted."""

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
        """What there is; `watch` is called when that changes."""
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
    ) -> dict[str, list[BrokerPartition]]:
        """The partitions of topics that living brokers have; `watch`: see `view`."""
        by_path = {paths.topic(topic): topic for topic in topics}
        nodes = self._values(by_path, lambda path: self._client.get_async(path, watch=watch))
        found = {}
        for path, value in nodes.items():
            node = TopicNode.load(value, path)
            if not node.deleting:
                found[by_path[path]] = [
                    BrokerPartition(broker, number)
                    for number, broker in enumerate(node.assignment)
                    if broker in brokers
                ]
        return found

    def claim(
        self, member: str, partitions: Iterable[RegisteredPartition], watch: Callable[[Any], None]
    ) -> tuple[list[RegisteredPartition], dict[RegisteredPartition, str]]:
        """Become the owner of partitions: those that are ours now, and who owns the others.

        `watch` is called when one of the others becomes free. NotAMemberError if the member's node
        is gone.
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
        """Own partitions no longer; NotAMemberError if the member's node is gone."""
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
        """The group's positions in partitions, where it has one."""
        by_path = {self._offset(partition): partition for partition in partitions}
        return {
            by_path[path]: OffsetNode.load(value, path).offset
            for path, value in self._values(by_path, self._client.get_async).items()
            if value
        }

    def commit(self, member: str, offsets: Mapping[RegisteredPartition, int]) -> None:
        """Write positions, all or none of up to a few hundred at once; NotAMemberError as above."""
        items = sorted(offsets.items())
        for first in range(0, len(items), _MAX_OPERATIONS):
            self._commit(member, items[first : first + _MAX_OPERATIONS])

    def _commit(self, member: str, items: list[tuple[RegisteredPartition, int]]) -> None:
        values = {self._offset(partition): OffsetNode(offset).dump() for partition, offset in items}
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
        for outcome in written:
            if isinstance(outcome, Exception):
                self._prepared.clear()  # somebody removed what was prepared: the next one makes it
                raise outcome
        self.writes += len(values)

    def _owner(self, partition: RegisteredPartition) -> str:
        return paths.owner(self._group, partition.topic, *partition.broker_partition)

    def _offset(self, partition: RegisteredPartition) -> str:
        return paths.offset(self._group, partition.topic, *partition.broker_partition)

    def _owner_at(self, path: str, watch: Callable[[Any], None]) -> str:
        try:
            value, _ = self._client.get(path, watch=watch)
        except self._errors.NoNodeError:
            watch(None)  # free already
            return ""
        return str(value.decode())

    def _prepare(self, path: str) -> None:
        if path not in self._prepared:
            self._client.ensure_path(path)
            self._prepared.add(path)

    def _values(self, nodes: Iterable[str], ask: Callable[[str], Any]) -> dict[str, Any]:
        """The values (for `exists`: the facts) of those nodes that are there."""
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
