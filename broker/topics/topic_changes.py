"""Changes of topics: create, delete, add partitions, configure, and follow the other brokers.

Rules:

- The coordination store decides which topics exist and which broker has which partition. A topic is
  stored before its folders are created, and its folders are deleted before it is forgotten.
- Changes run one after the other. Changes of other brokers arrive by `follow`, in the same order.
- A change that has begun runs to its end, even if its client disconnects. Others see it when it is
  complete.
- Nothing is deleted unless the store says that its topic is being deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TypeVar
from uuid import UUID

from headworks._broker.coordination import (
    ConfigChange,
    Coordination,
    Topic,
    TopicExistsError,
    new_internal_topic_id,
    new_topic_id,
)
from headworks._broker.coordination.assignment import assign, load_of
from headworks._broker.repeated_failure import RepeatedFailure
from headworks._broker.topics.hosted_topics import HostedTopics
from headworks._broker.topics.subject_rule import SubjectRule
from headworks._broker.topics.topic import HostedTopic, InvalidTopicError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class TopicChanges:
    """Changes the topics in `hosted` and in the store."""

    def __init__(
        self,
        hosted: HostedTopics,
        coordination: Coordination,
        subject_rule: SubjectRule | None = None,
    ) -> None:
        self.subject_rule = subject_rule or SubjectRule(None, None)
        # A client that creates a topic by its first request is not told why that failed.
        self.auto_create_failures = RepeatedFailure(_log, "topics cannot be created by being used")
        self._hosted = hosted
        self._coordination = coordination
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()
        self._running: set[asyncio.Task[object]] = set()  # changes that have begun

    async def load(self) -> None:
        """Host every topic in the store, and finish deletions that a crash interrupted."""
        hosted = self._hosted
        hosted.folder.mkdir(parents=True, exist_ok=True)
        present = {path.name for path in hosted.folder.iterdir()}
        await self._reconcile()
        logs = [partition.log for partition in hosted.partitions()]
        known_ids = (log.producers.next_producer_id for log in logs)
        await self._coordination.skip_producer_ids(max(known_ids, default=0))
        for partition in hosted.partitions():
            if hosted.path(partition.topic, partition.index).name not in present:
                _log.warning(
                    "partition %s had no folder and starts at offset 0. This is right if its"
                    " topic was created while this broker was away. If the folder was moved, stop"
                    " the broker and put it back",
                    partition,
                    extra=partition.about,
                )
        known = {
            hosted.path(topic.name, index).name
            for topic in hosted.topics.values()
            for index in range(topic.count)
        }
        for path in hosted.folder.iterdir():
            if path.name not in known:
                _log.warning(
                    "%s belongs to no topic; it is left alone", path, extra={"path": str(path)}
                )
        hosted.compactor.start()
        hosted.scrubber.start()

    # -- requested by clients ----------------------------------------------------------------

    async def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        assignment: tuple[int, ...] | None = None,
    ) -> HostedTopic:
        """Create a topic on the brokers of `assignment`, or spread evenly.

        Raises what `HostedTopics.check_new` and `SubjectRule.check` raise.
        """
        self._hosted.check_new(name, partitions, configs)
        await self.subject_rule.check(name)
        topic = await self._run_to_end(self._create(name, partitions, configs, assignment))
        await self._coordination.wait_until_followed(name)
        return topic

    async def create_internal(self, name: str, configs: Mapping[str, str]) -> None:
        """Create a topic with one partition that only the broker writes.

        Raises what `HostedTopics.check_new` raises.
        """
        await self._run_to_end(self._create(name, 1, configs, None, new_internal_topic_id()))

    async def delete(self, name: str) -> None:
        """Delete a topic. It is gone when this returns, whoever deleted it."""
        await self._run_to_end(self._delete(name))
        await self._coordination.wait_until_followed(name)

    async def add_partitions(
        self, name: str, count: int, added: tuple[int, ...] | None = None
    ) -> None:
        """Give a topic `count` partitions, the new ones on the brokers `added`, or spread evenly.

        Raises TooManyPartitionsError.
        """
        await self._run_to_end(self._add_partitions(name, count, added))
        await self._coordination.wait_until_followed(name)

    async def configure(self, name: str, change: ConfigChange) -> None:
        """Change the configs of a topic.

        Raises InvalidConfigError if they would be invalid, and what `change` raises.
        """
        await self._run_to_end(self._configure(name, change))

    async def reopen_partitions(self, name: str) -> None:
        """Open refused partitions again where the reason may have passed, at most once a second.

        So a topic that was created while the disk was full recovers with the next request.
        """
        topic = self._hosted.topics.get(name)
        if topic is not None and topic.may_reopen(self._loop.time()):
            await self._run_to_end(self._reopen_partitions(name))

    # -- from other brokers ------------------------------------------------------------------

    async def follow(self) -> None:
        """Apply the changes of other brokers; UnreachableError if the store cannot be read."""
        await self._run_to_end(self._follow())

    async def settle(self) -> None:
        """Wait for all changes that have begun."""
        while self._running:
            await asyncio.wait(self._running)

    # -- one at a time -----------------------------------------------------------------------

    async def _run_to_end(self, change: Coroutine[object, object, _T]) -> _T:
        task = asyncio.ensure_future(change)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        assignment: tuple[int, ...] | None,
        topic_id: UUID | None = None,
    ) -> HostedTopic:
        hosted = self._hosted
        async with self._one_at_a_time:
            hosted.check_new(name, partitions, configs)
            if assignment is None:
                assignment = self._assign(partitions)
            topic = Topic(name, assignment, dict(configs), topic_id=topic_id or new_topic_id())
            for index in topic.of(hosted.broker):
                if hosted.path(name, index).exists():
                    raise InvalidTopicError(
                        f"{hosted.path(name, index)} is in the way: it belongs to no known topic",
                        fix="move it away, or stop the broker and run `headworks broker adopt`",
                    )
            try:
                await self._coordination.create_topic(topic)
            except TopicExistsError:  # created by another broker, whose change was not followed yet
                await self._reconcile()
                raise
            self.auto_create_failures.recovered({"topic": name})
            return await self._host(topic, 0)

    async def _delete(self, name: str) -> None:
        async with self._one_at_a_time:
            topic = self._hosted.topics.get(name)
            if topic is None:  # another client deleted it first
                return
            await self._coordination.begin_delete(name)
            left = tuple(sorted(set(topic.assignment)))
            await self._remove(Topic(name, topic.assignment, {}, True, left))

    async def _add_partitions(self, name: str, count: int, added: tuple[int, ...] | None) -> None:
        async with self._one_at_a_time:
            topic = self._hosted.known(name)
            if count <= topic.count:  # another client added them first
                return
            self._hosted.check_room(name, count - topic.count)
            assignment = self._assign(count, topic.assignment)
            if added is not None:
                assignment = topic.assignment + added
            assignment = await self._coordination.add_partitions(name, assignment)
            await self._host(Topic(name, assignment, topic.configs), topic.count)

    async def _configure(self, name: str, change: ConfigChange) -> None:
        def checked(before: Mapping[str, str]) -> Mapping[str, str]:
            after = change(before)
            self._hosted.config(after)
            return after

        async with self._one_at_a_time:
            topic = self._hosted.known(name)
            configs = await self._coordination.change_configs(name, checked)
            if configs is None:
                raise InvalidTopicError(f"topic {name} was deleted meanwhile")
            self._hosted.apply_configs(topic, configs)

    async def _reopen_partitions(self, name: str) -> None:
        async with self._one_at_a_time:
            topic = self._hosted.topics.get(name)
            if topic is not None and topic.may_reopen(self._loop.time()):
                await self._hosted.reopen(topic)

    async def _follow(self) -> None:
        async with self._one_at_a_time:
            await self._reconcile()
            self._hosted.version += 1  # brokers may have joined or left

    # -- steps -------------------------------------------------------------------------------

    def _assign(self, count: int, present: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Assign partitions to the living brokers, and to this one, which surely lives."""
        brokers = {*self._coordination.members, self._hosted.broker}
        load = load_of(topic.assignment for topic in self._hosted.topics.values())
        return assign(count, brokers, load, present)

    async def _reconcile(self) -> None:
        """Host the topics in the store, and drop or remove the others."""
        topics = {topic.name: topic for topic in await self._coordination.topics()}
        for name in self._hosted.topics.keys() - topics.keys():
            _log.info("topic %s is gone", name, extra={"topic": name})
            await self._hosted.drop(name)
        for topic in topics.values():
            if topic.deleting:
                await self._remove(topic)
            else:
                await self._adopt(topic)

    async def _adopt(self, topic: Topic) -> None:
        """Host a topic as it is in the store."""
        hosted = self._hosted.topics.get(topic.name)
        if hosted is not None and (
            topic.topic_id != hosted.topic_id
            or topic.assignment[: hosted.count] != hosted.assignment
        ):
            await self._hosted.drop(topic.name)  # it was deleted, and created again
            hosted = None
        if hosted is None:
            await self._host(topic, 0)
            return
        if len(topic.assignment) > hosted.count:
            await self._host(topic, hosted.count)
        if dict(topic.configs) != dict(hosted.configs):
            self._hosted.apply_configs(hosted, topic.configs)

    async def _host(self, topic: Topic, first: int) -> HostedTopic:
        hosted = await self._hosted.host(topic, first)
        own = topic.of(self._hosted.broker)
        if own:
            await self._coordination.report_served(topic.name, len(own))
        return hosted

    async def _remove(self, topic: Topic) -> None:
        """Remove this broker's partitions of a topic that is being deleted."""
        hosted = self._hosted
        await hosted.drop(topic.name)
        if topic.left and hosted.broker not in topic.left:
            return
        await hosted.remove_folders(topic.name, topic.of(hosted.broker))
        await self._coordination.finish_delete(topic.name)
