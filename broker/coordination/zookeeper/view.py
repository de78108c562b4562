"""A broker's view of the cluster: living brokers, topics, and group configs, kept by watches.

Rules:

- A watch only marks what must be read again. One task at a time reads, in the loop.
- A broker marks its own changes, so that `refresh` returns them before the watch fires.
- After a lost connection everything is read again. While ZooKeeper does not answer, the last view
  stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

from headworks._broker.coordination.interface import ClusterMember, Topic
from headworks._broker.coordination.zookeeper.async_session import AsyncSession
from headworks._zookeeper import BrokerNode, GroupConfigsNode, SessionState, TopicNode, paths
from headworks.errors import CorruptError, UnreachableError

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5


def derived_topic_id(name: str, creation: int) -> UUID:
    """Return the id of a topic whose node has none: brokers of an older release made it.

    Every broker derives the same id from the transaction that created the node. A topic that is
    recreated has another one.
    """
    digest = sha256(f"{creation} {name}".encode()).digest()
    return UUID(bytes=digest[:16], version=4)


class ClusterView:
    """The view. `changed` is called in the loop after a watch has changed it."""

    def __init__(self, zookeeper: AsyncSession, changed: Callable[[], None]) -> None:
        self.members: dict[int, ClusterMember] = {}  # living brokers by id; replaced, not changed
        self.topics: dict[str, Topic] = {}  # by name; replaced, not changed
        self.group_configs: Mapping[str, Mapping[str, str]] = {}  # by group; replaced, not changed
        self._configs_dirty = True  # whether the configs of groups must be read again
        self._is_untold = False  # whether something has changed since `changed` was called
        self._zookeeper = zookeeper
        self._changed = changed
        self._brokers_dirty = True  # whether the living brokers must be read again
        self._listing_dirty = True  # whether the list of topics must be read again
        self._dirty: set[str] = set()  # topics that must be read again
        self._reading = asyncio.Lock()
        self._woken = asyncio.Event()  # something is dirty
        self._task: asyncio.Task[None] | None = None
        zookeeper.session.on_state(self._on_state)

    def start(self) -> None:
        """Start following the watches."""
        self._task = self._zookeeper.loop.create_task(self._follow())

    async def stop(self) -> None:
        """Stop following."""
        self._zookeeper.session.off_state(self._on_state)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def mark_changed(self, topic: str) -> None:
        """Note that this broker has changed a topic."""
        self._dirty.add(topic)
        self._listing_dirty = True
        self._woken.set()

    def mark_group_configs(self) -> None:
        """Note that the configs of groups have changed."""
        self._configs_dirty = True
        self._woken.set()

    async def read_topic(self, name: str) -> Topic | None:
        """Return a topic as it is now, and let `refresh` return it. Raises UnreachableError."""
        path = paths.topic(name)
        # our server may lag behind the one that took the change
        await self._zookeeper.ask(self._zookeeper.client.sync_async, path)
        topic = self._loaded(name, await self._zookeeper.value(path))
        if topic != self.topics.get(name):
            self.mark_changed(name)
        return topic

    async def refresh(self) -> bool:
        """Read what may have changed; return whether anything did. Raises UnreachableError."""
        async with self._reading:
            before = (self.members, self.topics, self.group_configs)
            await self._read_brokers()
            await self._read_topics()
            await self._read_group_configs()
            changed = before != (self.members, self.topics, self.group_configs)
            self._is_untold |= changed
            return changed

    async def _read_group_configs(self) -> None:
        if not self._configs_dirty:
            return
        self._configs_dirty = False
        path = paths.GROUP_CONFIGS
        try:
            await self._zookeeper.ensure(path)  # a missing node cannot be watched
            found = await self._zookeeper.value(path, self._on_group_configs)
        except BaseException:
            self._configs_dirty = True
            raise
        try:
            self.group_configs = GroupConfigsNode.load(found[0] if found else b"", path).groups
        except CorruptError as error:  # keep the last configs, until the node is repaired
            _log.error("%s", error, extra={"path": path})

    async def _read_brokers(self) -> None:
        if not self._brokers_dirty:
            return
        self._brokers_dirty = False
        try:
            names = await self._zookeeper.children(paths.BROKERS, self._on_brokers)
            numbers = sorted(int(name) for name in names if name.isdigit())
            found = [(number, await self._member(number)) for number in numbers]
        except BaseException:
            self._brokers_dirty = True
            raise
        self.members = {number: member for number, member in found if member is not None}

    async def _member(self, number: int) -> ClusterMember | None:
        path = paths.broker(number)
        found = await self._zookeeper.value(path)
        if found is None:
            return None
        try:
            node = BrokerNode.load(found[0], path)
        except CorruptError as error:
            _log.error("%s", error, extra={"path": path})
            return None
        return ClusterMember(number, node.host, node.port)

    async def _read_topics(self) -> None:
        topics = self.topics
        if self._listing_dirty:
            self._listing_dirty = False
            try:
                components = await self._zookeeper.children(paths.TOPICS, self._on_listing)
            except BaseException:
                self._listing_dirty = True
                raise
            names = {paths.name_of(component) for component in components}
            topics = {name: topic for name, topic in topics.items() if name in names}
            self._dirty = {name for name in self._dirty if name in names}
            self._dirty |= names - topics.keys()
        reading, self._dirty = self._dirty, set()
        try:
            found = await self._zookeeper.each(self._topic, sorted(reading))
        except BaseException:
            self._dirty |= reading
            raise
        if reading:
            gone = {name for name in reading if name in topics}
            topics = {name: topic for name, topic in topics.items() if name not in gone}
            topics |= {topic.name: topic for topic in found if topic is not None}
        self.topics = topics

    async def _topic(self, name: str) -> Topic | None:
        path = paths.topic(name)
        found = await self._zookeeper.value(
            path, lambda _event: self._zookeeper.call_in_loop(self._on_topic, name)
        )
        return self._loaded(name, found)

    def _loaded(self, name: str, found: tuple[bytes, Any] | None) -> Topic | None:
        if found is None:
            return None
        path = paths.topic(name)
        try:
            node = TopicNode.load(found[0], path)
        except CorruptError as error:  # serve it as before, until the node is repaired
            _log.error("%s", error, extra={"path": path})
            return self.topics.get(name)
        topic_id = node.topic_id or derived_topic_id(name, found[1].creation_transaction_id)
        return Topic(name, node.assignment, node.configs, node.deleting, node.left, topic_id)

    async def _follow(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self.refresh()
                if self._is_untold:  # by this refresh, or by one that somebody asked for
                    self._is_untold = False
                    self._changed()
            except UnreachableError as error:
                _log.debug(
                    "cannot follow the cluster now: %s", error, extra={"error": error.message}
                )
                await asyncio.sleep(_RETRY_SECONDS)
                self._woken.set()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._zookeeper.call_in_loop(self._mark_all)

    def _on_brokers(self, _event: object) -> None:
        self._zookeeper.call_in_loop(self._mark_brokers)

    def _on_group_configs(self, _event: object) -> None:
        self._zookeeper.call_in_loop(self.mark_group_configs)

    def _on_listing(self, _event: object) -> None:
        self._zookeeper.call_in_loop(self._mark_listing)

    def _on_topic(self, name: str) -> None:
        self._dirty.add(name)
        self._woken.set()

    def _mark_brokers(self) -> None:
        self._brokers_dirty = True
        self._woken.set()

    def _mark_listing(self) -> None:
        self._listing_dirty = True
        self._woken.set()

    def _mark_all(self) -> None:
        self._dirty |= self.topics.keys()
        self._mark_brokers()
        self._mark_listing()
        self.mark_group_configs()
