"""Groups that balance themselves, read from their directories in ZooKeeper.

Rules:

- All reads go through `_all`, which sends every request of one level at once. The time is that of a
  few round trips, however many groups and topics there are.
- A node that disappears between two reads counts as missing.
- A change of offsets checks first that the group has no members. It is one transaction per
  `_MAX_OPERATIONS` partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from headworks._zookeeper import paths
from headworks._zookeeper.nodes import OffsetNode, TopicNode
from headworks._zookeeper.session import ZooKeeperSession, kazoo
from headworks.errors import RefusedError, UnreachableError, UsageError
from headworks.groups._model import (
    GroupDescription,
    GroupKind,
    GroupListing,
    MemberDescription,
    TopicPartition,
    positions_of,
)

T = TypeVar("T")
_TIMEOUT_SECONDS = 15.0
_MAX_OPERATIONS = 500


class DecentralizedGroups:
    """The decentralized groups below /consumers of an ensemble."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._client = session.client

    def listed(self) -> list[GroupListing]:
        """Return the groups that have had such members, sorted by name."""
        names = [paths.name_of(name) for name in self._children([paths.CONSUMERS])[0] or ()]
        members = self._children([paths.members(name) for name in names])
        return [
            GroupListing(name, GroupKind.DECENTRALIZED, bool(found), "stable" if found else "empty")
            for name, found in sorted(zip(names, members, strict=True))
            if found is not None
        ]

    def described(self, names: Sequence[str]) -> list[GroupDescription]:
        """Return the members, owners, and offsets of groups."""
        members = self._children([paths.members(name) for name in names])
        owners = self._values(names, paths.owners, paths.group_topic_owners)
        offsets = self._values(names, paths.offsets, paths.group_topic_offsets)
        found = []
        for name, ids, owned, committed in zip(names, members, owners, offsets, strict=True):
            owner_of = {partition: value.decode() for (partition, _), value in owned.items()}
            offset_of = self._offsets_of(committed)
            own = tuple(_member(paths.name_of(one), owner_of) for one in sorted(ids or ()))
            state, positions = "stable" if own else "empty", positions_of(owner_of, offset_of)
            found.append(
                GroupDescription(name, GroupKind.DECENTRALIZED, bool(own), state, own, positions)
            )
        return found

    def set_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members; RefusedError if it has some."""
        self._refuse_active(name, "moved")
        topics = self._topics({partition.topic for partition in offsets})
        items = sorted(offsets.items())
        values: dict[str, bytes] = {}
        for partition, offset in items:
            topic = topics.get(partition.topic, TopicNode(()))
            if not 0 <= partition.partition < len(topic.assignment):
                raise UsageError(
                    f"there is no partition {partition.partition} of topic {partition.topic!r}",
                    fix="see `headworks topic list`",
                )
            broker = topic.assignment[partition.partition]
            path = paths.offset(name, partition.topic, broker, partition.partition)
            values[path] = OffsetNode(offset, topic_id=topic.topic_id).dump()
        for path in sorted({path.rpartition("/")[0] for path in values} | {paths.members(name)}):
            self._client.ensure_path(path)
        known = dict(zip(values, self._all(self._client.exists_async, values), strict=True))
        written = list(values.items())
        for first in range(0, len(written), _MAX_OPERATIONS):
            change = self._client.transaction()
            for path, value in written[first : first + _MAX_OPERATIONS]:
                (change.create if known[path] is None else change.set_data)(path, value)
            for outcome in change.commit():
                if isinstance(outcome, Exception):
                    raise RefusedError(f"ZooKeeper did not move group {name}: {outcome!r}")

    def delete(self, name: str) -> None:
        """Delete a group without members, and its offsets; RefusedError if it has some."""
        self._refuse_active(name, "deleted")
        self._client.delete(paths.group(name), recursive=True)

    def _refuse_active(self, name: str, what: str) -> None:
        members = self._children([paths.members(name)])[0]
        if members:
            raise RefusedError(
                f"group {name} has {len(members)} members, and cannot be {what} while they read",
                fix="stop its consumers first",
            )

    def _offsets_of(
        self, committed: Mapping[tuple[TopicPartition, str], bytes]
    ) -> dict[TopicPartition, int]:
        """Return the offsets, but not those of earlier topics of the same names."""
        nodes = {
            partition: OffsetNode.load(value, path)
            for (partition, path), value in committed.items()
            if value
        }
        topics = self._topics({partition.topic for partition in nodes})
        return {
            partition: node.offset
            for partition, node in nodes.items()
            if partition.topic not in topics
            or topics[partition.topic].topic_id in (None, node.topic_id)
            or node.topic_id is None
        }

    def _topics(self, topics: Iterable[str]) -> dict[str, TopicNode]:
        names = sorted(topics)
        nodes = self._all(self._client.get_async, [paths.topic(name) for name in names])
        return {
            name: TopicNode.load(node[0], paths.topic(name))
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }

    def _values(
        self,
        names: Sequence[str],
        above: Callable[[str], str],
        of_topic: Callable[[str, str], str],
    ) -> list[dict[tuple[TopicPartition, str], bytes]]:
        """Return, for each group, the values of its partitions' nodes, with their paths."""
        topics = self._children([above(name) for name in names])
        asked = [
            (index, paths.name_of(topic))
            for index, found in enumerate(topics)
            for topic in found or ()
        ]
        below = [of_topic(names[index], topic) for index, topic in asked]
        partitions = self._children(below)
        nodes = [
            (index, TopicPartition(topic, paths.broker_partition_of(one)[1]), f"{path}/{one}")
            for (index, topic), path, found in zip(asked, below, partitions, strict=True)
            for one in found or ()
        ]
        values = self._all(self._client.get_async, [path for _, _, path in nodes])
        found_of: list[dict[tuple[TopicPartition, str], bytes]] = [{} for _ in names]
        for (index, partition, path), value in zip(nodes, values, strict=True):
            if value is not None:
                found_of[index][partition, path] = value[0]
        return found_of

    def _children(self, parents: Sequence[str]) -> list[list[str] | None]:
        return self._all(self._client.get_children_async, parents)

    def _all(self, ask: Callable[[str], Any], nodes: Iterable[str]) -> list[Any]:
        """Return the results of one request for many nodes; None for a missing node."""
        exceptions = kazoo("exceptions")
        under_way = [ask(path) for path in nodes]
        found = []
        for answer in under_way:
            try:
                found.append(answer.get(timeout=_TIMEOUT_SECONDS))
            except exceptions.NoNodeError:
                found.append(None)
            except (
                exceptions.ConnectionLoss,
                exceptions.SessionExpiredError,
                exceptions.ConnectionClosedError,
                kazoo("handlers.threading").KazooTimeoutError,
            ) as error:
                raise UnreachableError(
                    f"ZooKeeper at {self._session.address} stopped answering: {error!r}",
                    fix="try again when it is back",
                ) from None
        return found


def _member(name: str, owners: Mapping[TopicPartition, str]) -> MemberDescription:
    mine = tuple(sorted(partition for partition, owner in owners.items() if owner == name))
    return MemberDescription(name, name.rpartition(":")[0], mine)
