"""The coordination store of a cluster: the directories of NetDB'11 in ZooKeeper.

Rules:

- A topic's node is changed by compare-and-set from the version that was read. If two brokers change
  it at once, both changes happen, one after the other.
- Every decision reads ZooKeeper. Only the `ClusterView` is kept in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headworks._broker.coordination.interface import (
    ClusterMember,
    ConfigChange,
    Topic,
    TopicExistsError,
)
from headworks._broker.coordination.zookeeper.async_session import AsyncSession
from headworks._broker.coordination.zookeeper.groups import ZooKeeperGroups
from headworks._broker.coordination.zookeeper.registration import Registration
from headworks._broker.coordination.zookeeper.view import ClusterView, derived_topic_id
from headworks._zookeeper import TopicNode, open_session, paths
from headworks.errors import HeadworksError, UnreachableError

_log = logging.getLogger(__name__)
_START_SECONDS = 15.0  # to wait for a connection, or for ZooKeeper to elect a leader
_FOLLOW_TIMEOUT_SECONDS = 5.0
_POLL_SECONDS = 0.02
_PRODUCER_ID_BLOCK = 1000


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How a broker joins a cluster."""

    zookeeper: str  # HOST:PORT[,HOST:PORT..][/chroot]
    session_seconds: float = 6.0  # of silence, after which ZooKeeper ends the session
    take_over: bool = False  # whether an empty folder may replace the lost one of this id


class ZooKeeperCoordination(ZooKeeperGroups):
    """The store. Created by `opened`."""

    transactions = None  # their markers would go to partitions of several brokers

    def __init__(self, zookeeper: AsyncSession, broker: int, folder: Path) -> None:
        super().__init__(zookeeper, ClusterView(zookeeper, self._notify_watchers))
        self.failure: asyncio.Future[HeadworksError] = zookeeper.loop.create_future()
        self._broker = broker
        self._joined = False
        self._watchers: list[Callable[[], None]] = []
        self._registration = Registration(
            zookeeper, broker, folder, self._notify_watchers, self._fail
        )
        self._producer_ids = range(0)  # producer ids that are allocated but not used
        self._allocating = asyncio.Lock()

    @classmethod
    async def opened(
        cls, options: ClusterOptions, broker: int, folder: Path
    ) -> ZooKeeperCoordination:
        """Open a session and claim the id; see `Registration.claim` and `open_session`."""
        session = await asyncio.to_thread(
            open_session, options.zookeeper, timeout=options.session_seconds, create_chroot=True
        )
        zookeeper = AsyncSession(session, asyncio.get_running_loop())
        store = cls(zookeeper, broker, folder)
        try:
            claim = partial(store._registration.claim, take_over=options.take_over)
            await zookeeper.retry(claim, _START_SECONDS)
            await zookeeper.retry(store._view.refresh, _START_SECONDS)
        except BaseException:
            await asyncio.to_thread(session.close)
            raise
        store._view.start()
        return store

    # -- the cluster -------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """See `Coordination`."""
        return self._registration.identity.cluster

    @property
    def members(self) -> Mapping[int, ClusterMember]:
        """See `Coordination`."""
        return self._view.members

    @property
    def lease_valid(self) -> bool:
        """See `Coordination`."""
        return self._registration.lease.valid

    def watch(self, changed: Callable[[], None]) -> None:
        """See `Coordination`."""
        self._watchers.append(changed)

    async def join(self, member: ClusterMember) -> None:
        """See `Coordination`."""
        await self._zookeeper.retry(partial(self._registration.join, member), _START_SECONDS)
        await self._zookeeper.retry(self._view.refresh, _START_SECONDS)
        self._joined = True
        self._notify_watchers()

    async def leave(self) -> None:
        """See `Coordination`."""
        await self._registration.leave()

    async def close(self) -> None:
        """See `Coordination`."""
        await self._view.stop()
        await self._registration.leave()
        await self.offset_writer.stop()
        await asyncio.to_thread(self._zookeeper.session.close)

    async def _ask_patiently(self, question: Callable[[], Awaitable[object]]) -> None:
        """Ask an idempotent question; retry it while the broker starts, which it would end."""
        if self._joined:
            await question()
        else:
            await self._zookeeper.retry(question, _START_SECONDS)

    def _notify_watchers(self) -> None:
        for changed in self._watchers:
            changed()

    def _fail(self, error: HeadworksError) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    # -- topics ------------------------------------------------------------------------------

    async def topics(self) -> list[Topic]:
        """See `Coordination`."""
        await self._ask_patiently(self._view.refresh)
        return list(self._view.topics.values())

    async def read_topic(self, name: str) -> Topic | None:
        """See `Coordination`."""
        return await self._view.read_topic(name)

    async def create_topic(self, topic: Topic) -> None:
        """See `Coordination`."""
        node = TopicNode(topic.assignment, topic.configs, topic_id=topic.topic_id)
        path = paths.topic(topic.name)
        try:
            await self._zookeeper.ask(self._zookeeper.client.create_async, path, node.dump())
        except self._zookeeper.NodeExists:
            self._view.mark_changed(topic.name)
            raise TopicExistsError(await self._name_taken_reason(topic.name)) from None
        self._view.mark_changed(topic.name)

    async def _name_taken_reason(self, name: str) -> str:
        found = await self._zookeeper.value(paths.topic(name))
        node = None if found is None else TopicNode.load(found[0], paths.topic(name))
        if node is None or not node.deleting:
            return f"topic {name!r} exists already"
        left = ", ".join(map(str, node.left))
        return (
            f"topic {name!r} is being deleted: the name is free again when these brokers have"
            f" removed their part: {left or 'none any more'}"
        )

    async def begin_delete(self, name: str) -> None:
        """See `Coordination`."""

        def mark(node: TopicNode) -> TopicNode:
            if node.deleting:
                return node
            return replace(node, deleting=True, left=tuple(sorted(set(node.assignment))))

        await self._change(name, mark)

    async def finish_delete(self, name: str) -> None:
        """See `Coordination`."""
        await self._ask_patiently(partial(self._finish_delete, name))

    async def _finish_delete(self, name: str) -> None:
        """Only the last broker forgets the topic, at the version that it read.

        The name may belong to another topic by then.
        """
        await self._registration.set_served(name, 0)
        path = paths.topic(name)
        while (found := await self._zookeeper.value(path)) is not None:
            node = TopicNode.load(found[0], path)
            if not node.deleting:
                break
            left = tuple(broker for broker in node.left if broker != self._broker)
            client, version = self._zookeeper.client, found[1].version
            try:
                if left:
                    less = replace(node, left=left).dump()
                    await self._zookeeper.ask(client.set_async, path, less, version)
                else:
                    await self._forget_positions(name)
                    await self._zookeeper.ask(client.delete_async, path, version)
            except (self._zookeeper.BadVersion, self._zookeeper.NoNode):
                continue
            except self._zookeeper.NotEmpty:  # entries of a broker that died
                for child in await self._zookeeper.children(path):
                    await self._zookeeper.remove(f"{path}/{child}")
            else:
                break
        self._view.mark_changed(name)

    async def _forget_positions(self, topic: str) -> None:
        for group in await self._groups():
            path = paths.group_topic_offsets(group, topic)
            self.offset_writer.forget(path)
            await self._zookeeper.remove(path)

    async def add_partitions(self, name: str, assignment: tuple[int, ...]) -> tuple[int, ...]:
        """See `Coordination`."""

        def longer(node: TopicNode) -> TopicNode:
            if len(node.assignment) >= len(assignment) or node.deleting:
                return node
            return replace(node, assignment=assignment)

        node = await self._change(name, longer)
        return assignment if node is None else node.assignment

    async def change_configs(self, name: str, change: ConfigChange) -> Mapping[str, str] | None:
        """See `Coordination`."""

        def changed(node: TopicNode) -> TopicNode:
            return node if node.deleting else replace(node, configs=dict(change(node.configs)))

        node = await self._change(name, changed)
        return None if node is None or node.deleting else node.configs

    async def _change(
        self, name: str, change: Callable[[TopicNode], TopicNode]
    ) -> TopicNode | None:
        """Change the node of a topic by compare-and-set; None if it is gone."""
        path = paths.topic(name)
        while True:
            found = await self._zookeeper.value(path)
            if found is None:
                self._view.mark_changed(name)
                return None
            node = TopicNode.load(found[0], path)
            new = change(node)
            if new.topic_id is None:
                derived = derived_topic_id(name, found[1].creation_transaction_id)
                new = replace(new, topic_id=derived)
            if new != node:
                try:
                    await self._zookeeper.ask(
                        self._zookeeper.client.set_async, path, new.dump(), found[1].version
                    )
                except (self._zookeeper.BadVersion, self._zookeeper.NoNode):
                    continue
            self._view.mark_changed(name)
            return new

    async def report_served(self, name: str, partitions: int) -> None:
        """See `Coordination`."""
        await self._registration.set_served(name, partitions)

    async def wait_until_followed(self, name: str) -> None:
        """See `Coordination`."""
        with contextlib.suppress(TimeoutError, UnreachableError):
            async with asyncio.timeout(_FOLLOW_TIMEOUT_SECONDS):
                while not await self._followed(name):
                    await asyncio.sleep(_POLL_SECONDS)

    async def _followed(self, name: str) -> bool:
        await self._view.refresh()
        topic = self._view.topics.get(name)
        if topic is None:
            return True
        if topic.deleting:
            return not set(topic.left) & set(self.members)
        for broker in set(topic.assignment) & set(self.members):
            found = await self._zookeeper.value(paths.served(name, broker))
            if found is None or int(found[0]) < len(topic.of(broker)):
                return False
        return True

    # -- producers ---------------------------------------------------------------------------

    async def allocate_producer_ids(self, count: int) -> int:
        """See `Coordination`. Each broker allocates ids in blocks."""
        async with self._allocating:
            if len(self._producer_ids) < count:
                size = max(count, _PRODUCER_ID_BLOCK)
                first = await self._take_block(size)
                self._producer_ids = range(first, first + size)
            first = self._producer_ids[0]
            self._producer_ids = self._producer_ids[count:]
            return first

    async def skip_producer_ids(self, first: int) -> None:
        """See `Coordination`."""
        await self._ask_patiently(partial(self._skip_producer_ids, first))

    async def _skip_producer_ids(self, first: int) -> None:
        found = await self._zookeeper.value(paths.PRODUCER_IDS)
        if first > (0 if found is None else int(found[0])):
            await self._take_block(0, first)

    async def _take_block(self, size: int, least: int = 0) -> int:
        """Take a block of producer ids that starts at `least` or above, and return its first."""
        path = paths.PRODUCER_IDS
        while True:
            found = await self._zookeeper.value(path)
            try:
                if found is None:
                    end = b"%d" % (least + size)
                    await self._zookeeper.ask(self._zookeeper.client.create_async, path, end)
                    return least
                first = max(int(found[0]), least)
                await self._zookeeper.ask(
                    self._zookeeper.client.set_async, path, b"%d" % (first + size), found[1].version
                )
            except (self._zookeeper.NodeExists, self._zookeeper.BadVersion):
                continue
            else:
                return first
