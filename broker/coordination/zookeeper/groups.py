"""The consumer groups in ZooKeeper: committed offsets, protocol types, and configs.

Rules:

- A committed offset belongs to one topic. One that names an earlier topic of that name is ignored.
- A node that cannot be read is logged and skipped, so that it never hides the offsets beside it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping

from headworks._broker.coordination.committed_offset import CommittedOffset
from headworks._broker.coordination.interface import ConfigChange, PartitionKey
from headworks._broker.coordination.zookeeper.async_session import AsyncSession
from headworks._broker.coordination.zookeeper.offset_writer import OffsetWriter
from headworks._broker.coordination.zookeeper.view import ClusterView
from headworks._zookeeper import GroupConfigsNode, GroupNode, OffsetNode, paths
from headworks.errors import CorruptError

_log = logging.getLogger(__name__)


class ZooKeeperGroups:
    """The half of the store that keeps what groups committed; `view` knows the topics."""

    def __init__(self, zookeeper: AsyncSession, view: ClusterView) -> None:
        self.offset_writer = OffsetWriter(zookeeper)
        self._zookeeper = zookeeper
        self._view = view
        self._typed_groups: set[str] = set()  # whose protocol type this broker has stored

    async def commit_offsets(
        self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], protocol_type: str = ""
    ) -> None:
        """See `Coordination`."""
        topics = self._view.topics
        values = {
            paths.offset(group, name, topics[name].assignment[index], index): OffsetNode(
                at.offset, at.leader_epoch, at.metadata, at.topic_id
            ).dump()
            for (name, index), at in offsets.items()
            if name in topics and index < len(topics[name].assignment)
        }
        new = protocol_type and group not in self._typed_groups
        if values and new:
            values[paths.group(group)] = GroupNode(protocol_type).dump()
        await self.offset_writer.store(values)
        if values and new:
            self._typed_groups.add(group)

    async def offsets(self, group: str) -> dict[PartitionKey, CommittedOffset]:
        """See `Coordination`."""
        found: dict[PartitionKey, CommittedOffset] = {}
        for component in await self._zookeeper.children(paths.offsets(group)):
            name = paths.name_of(component)
            above = paths.group_topic_offsets(group, name)
            places = await self._zookeeper.children(above)
            values = await self._zookeeper.each(
                self._zookeeper.value, [f"{above}/{place}" for place in places]
            )
            for place, value in zip(places, values, strict=True):
                if value is None:
                    continue
                path = f"{above}/{place}"
                try:
                    _, index = paths.broker_partition_of(place)
                    node = OffsetNode.load(value[0], path)
                except (ValueError, CorruptError) as error:
                    _log.error("%s: %s", path, error, extra={"path": path})
                    continue
                topic = self._view.topics.get(name)
                if topic is not None and node.topic_id not in (None, topic.topic_id):
                    continue  # an offset of an earlier topic of this name
                found[name, index] = CommittedOffset(
                    node.offset, node.leader_epoch, node.metadata, node.topic_id
                )
        return found

    async def groups(self) -> dict[str, str]:
        """See `Coordination`."""
        groups = await self._groups()
        types = await self._zookeeper.each(self.group_type, groups)
        found = zip(groups, types, strict=True)
        return {group: its_type for group, its_type in found if its_type is not None}

    async def _groups(self) -> list[str]:
        return [paths.name_of(name) for name in await self._zookeeper.children(paths.CONSUMERS)]

    async def group_type(self, group: str) -> str | None:
        """See `Coordination`."""
        if not await self._zookeeper.children(paths.offsets(group)):
            return None
        found = await self._zookeeper.value(paths.group(group))
        return None if found is None else GroupNode.load(found[0]).protocol_type

    async def has_members(self, group: str) -> bool:
        """See `Coordination`."""
        return bool(await self._zookeeper.children(paths.members(group)))

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """See `Coordination`."""
        return self._view.group_configs

    async def change_group_configs(self, group: str, change: ConfigChange) -> None:
        """See `Coordination`."""
        path = paths.GROUP_CONFIGS
        while True:
            await self._zookeeper.ensure(path)
            found = await self._zookeeper.value(path)
            if found is None:
                continue
            before = GroupConfigsNode.load(found[0], path).groups
            configs = dict(change(before.get(group, {})))
            after = {name: own for name, own in before.items() if name != group}
            if configs:
                after[group] = configs
            value = GroupConfigsNode(after).dump()
            try:
                await self._zookeeper.ask(
                    self._zookeeper.client.set_async, path, value, found[1].version
                )
            except self._zookeeper.BadVersion:
                continue
            self._view.mark_group_configs()
            await self._view.refresh()
            return

    async def delete_offsets(self, group: str, keys: Iterable[PartitionKey] | None = None) -> None:
        """See `Coordination`."""
        if keys is None:
            self._typed_groups.discard(group)
            self.offset_writer.forget(paths.group(group))
            await self._zookeeper.remove(paths.group(group))
            return
        wanted: dict[str, set[int]] = {}
        for name, index in keys:
            wanted.setdefault(name, set()).add(index)
        for name, indexes in wanted.items():
            above = paths.group_topic_offsets(group, name)
            self.offset_writer.forget(above)
            for place in await self._zookeeper.children(above):
                if paths.broker_partition_of(place)[1] in indexes:
                    await self._zookeeper.remove(f"{above}/{place}")
            if not await self._zookeeper.children(above):
                with contextlib.suppress(self._zookeeper.NotEmpty, self._zookeeper.NoNode):
                    await self._zookeeper.ask(self._zookeeper.client.delete_async, above)
