"""All topics that this broker serves, with their partitions.

Rules:

- The coordination store decides which topics exist and which broker has which partition; the
  folder of a partition is made after the topic is stored and removed before it is forgotten.
- What other brokers change comes by `follow`, one change after the other with this broker's own.
- A partition whose log must not, or cannot, be served is `refused`, with the reason; the others are
  served.
- A change that has begun is finished, even if whoever asked for it goes away meanwhile; it never
  makes others wait for the disk, and is seen when it is whole.
- The number of partitions is bounded: each holds files open, and anybody's typing error makes one.
- `version` grows with every change, so that replies may be cached.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from headworks._atomic_file import sync_folder
from headworks._broker.coordination import ConfigChange, Coordination, Topic, TopicExistsError
from headworks._broker.coordination.assignment import assign, load_of
from headworks._broker.log import MAX_PRODUCERS, FlushFailedError, ProducerLimit
from headworks._broker.repeated_failure import RepeatedFailure
from headworks._broker.topics.compactor import Compactor
from headworks._broker.topics.config import (
    VALIDATION,
    InvalidConfigError,
    TopicConfig,
    resolve_config,
)
from headworks._broker.topics.flusher import Flusher
from headworks._broker.topics.opening import open_logs
from headworks._broker.topics.partition import HostedPartition
from headworks._broker.topics.schema_ids import SchemaIdCache
from headworks._broker.topics.topic import (
    HostedTopic,
    InvalidTopicError,
    TooManyPartitionsError,
    is_topic_name,
)

__all__ = ["MAX_PARTITIONS", "PRODUCER_SECONDS", "HostedTopics"]

MAX_PARTITIONS = 10_000
PRODUCER_SECONDS = 86_400.0

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class HostedTopics:
    """The topics of a broker. Filled by `load`."""

    def __init__(
        self,
        folder: Path,
        coordination: Coordination,
        flusher: Flusher,
        defaults: Mapping[str, str],
        *,
        show_unflushed: bool = False,
        max_partitions: int = MAX_PARTITIONS,
        registry: str | None = None,
        compaction_seconds: float = 15.0,
        max_producers: int = MAX_PRODUCERS,
        producer_seconds: float = PRODUCER_SECONDS,
        broker: int = 1,
    ) -> None:
        self.topics: dict[str, HostedTopic] = {}
        self.defaults = defaults
        self.version = 0
        self.cut_bytes = 0
        self._folder = folder
        self._coordination = coordination
        self._flusher = flusher
        self._show_unflushed = show_unflushed
        self._max_partitions = max_partitions
        self._broker = broker
        self._producer_seconds = producer_seconds
        self.producers = ProducerLimit(max_producers)
        self._count = 0  # of partitions, served or not
        self._loop = asyncio.get_running_loop()
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()
        self.compactor = Compactor(self.partitions, interval=compaction_seconds)
        # for who creates by using: whoever creates on purpose is told in the answer
        self.auto_create_failures = RepeatedFailure(_log, "topics cannot be created by being used")
        self.validates_records = False  # whether any topic wants its batches looked into
        self.schema_ids = None if registry is None else SchemaIdCache(registry)

    @property
    def folder(self) -> Path:
        """Where the logs are."""
        return self._folder

    async def load(self) -> None:
        """Open every topic of the store; finish deletions that a crash interrupted."""
        self._folder.mkdir(parents=True, exist_ok=True)
        present = {path.name for path in self._folder.iterdir()}
        await self._reconcile()
        for partition in self.partitions():
            if self._path(partition.topic, partition.index).name not in present:
                _log.warning(
                    "partition %s had no folder and begins anew at offset 0, as it must if its"
                    " topic was made while this broker was away; if the folder was moved, stop the"
                    " broker and put it back",
                    partition,
                    extra=partition.about,
                )
        known = {
            self._path(topic.name, index).name
            for topic in self.topics.values()
            for index in range(topic.count)
        }
        for path in self._folder.iterdir():
            if path.name not in known:
                _log.warning(
                    "%s belongs to no topic; it is left alone", path, extra={"path": str(path)}
                )
        self.compactor.start()

    def partition(self, topic: str, index: int) -> HostedPartition | None:
        """The partition, or None if it is not served."""
        served = self.topics.get(topic)
        return None if served is None else served.partitions.get(index)

    def partitions(self) -> Iterator[HostedPartition]:
        """Every served partition."""
        for topic in tuple(self.topics.values()):
            yield from tuple(topic.partitions.values())

    def config(self, configs: Mapping[str, str]) -> TopicConfig:
        """A topic's configs over this broker's defaults; InvalidConfigError if they are wrong."""
        resolved = self._resolve(configs)
        if resolved.schema_validation and self.schema_ids is None:
            raise InvalidConfigError(
                f"config {VALIDATION}=true needs a registry to ask, and this broker has none",
                fix="start the broker with --registry URL",
            )
        return resolved

    def check_new(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Whether it can be created.

        InvalidTopicError, TopicExistsError, InvalidConfigError or TooManyPartitionsError if not.
        """
        if not is_topic_name(name):
            raise InvalidTopicError(
                f"topic name {name[:300]!r} is not 1 to 249 of letters, digits, '.', '_', '-'"
            )
        if name in self.topics:
            raise TopicExistsError(f"topic {name!r} exists already")
        self.config(configs)
        self._check_room(name, partitions)

    async def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        assignment: tuple[int, ...] | None = None,
    ) -> HostedTopic:
        """Create a topic, on the brokers given or spread evenly. Raises what `check_new` raises."""
        self.check_new(name, partitions, configs)
        served = await self._run_to_end(self._create(name, partitions, configs, assignment))
        await self._coordination.wait_until_followed(name)
        return served

    async def delete(self, name: str) -> None:
        """Delete a topic; when this returns it is gone, whoever deleted it."""
        await self._run_to_end(self._delete(name))
        await self._coordination.wait_until_followed(name)

    async def add_partitions(
        self, name: str, count: int, added: tuple[int, ...] | None = None
    ) -> None:
        """Give a topic more partitions, up to `count`: on the brokers `added`, or spread evenly.

        TooManyPartitionsError.
        """
        await self._run_to_end(self._add_partitions(name, count, added))
        await self._coordination.wait_until_followed(name)

    async def follow(self) -> None:
        """Do what other brokers have changed. UnreachableError if that cannot be known now."""
        await self._run_to_end(self._follow())

    async def configure(self, name: str, change: ConfigChange) -> None:
        """Change the configs of a served topic, whoever else does.

        InvalidConfigError if they would be wrong; what `change` raises.
        """
        await self._run_to_end(self._configure(name, change))

    async def settle(self) -> None:
        """Wait for the changes that have begun."""
        while self._changes:
            await asyncio.wait(self._changes)

    async def _run_to_end(self, change: Coroutine[object, object, _T]) -> _T:
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        assignment: tuple[int, ...] | None,
    ) -> HostedTopic:
        async with self._changing:
            self.check_new(name, partitions, configs)
            if assignment is None:
                assignment = self._assign(partitions)
            topic = Topic(name, assignment, dict(configs))
            for index in topic.of(self._broker):
                if self._path(name, index).exists():
                    raise InvalidTopicError(
                        f"{self._path(name, index)} is in the way: it belongs to no known topic"
                    )
            try:
                await self._coordination.create_topic(topic)
            except TopicExistsError:  # by another broker, which has not been followed yet
                await self._reconcile()
                raise
            self.auto_create_failures.recovered({"topic": name})
            return await self._serve(topic, 0)

    def _assign(self, count: int, present: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Brokers for a topic's partitions; who is asked to do it is alive, whatever is known."""
        brokers = {*self._coordination.members, self._broker}
        load = load_of(topic.assignment for topic in self.topics.values())
        return assign(count, brokers, load, present)

    async def _delete(self, name: str) -> None:
        async with self._changing:
            topic = self.topics.get(name)
            if topic is None:  # somebody else was faster
                return
            await self._coordination.begin_delete(name)
            left = tuple(sorted(set(topic.assignment)))
            await self._remove(Topic(name, topic.assignment, {}, True, left))

    async def _remove(self, topic: Topic) -> None:
        """Remove this broker's part of a topic that is being deleted."""
        await self._drop(topic.name)
        if topic.left and self._broker not in topic.left:
            return
        indexes = topic.of(self._broker)
        await asyncio.to_thread(self._remove_folders, topic.name, indexes)
        await self._coordination.finish_delete(topic.name)

    async def _drop(self, name: str) -> None:
        """Serve a topic no more; its files stay."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self._count -= topic.count
        self.version += 1
        for partition in topic.partitions.values():
            partition.stop("the topic was deleted")
            partition.log.producers.leave()
            partition.log.close_when_unused()  # its files close with the last reader
            await self.compactor.release(partition)
        self._update_validates_records()

    async def _add_partitions(self, name: str, count: int, added: tuple[int, ...] | None) -> None:
        async with self._changing:
            topic = self._known(name)
            if count <= topic.count:  # somebody else was faster
                return
            self._check_room(name, count - topic.count)
            grown = self._assign(count, topic.assignment)
            if added is not None:
                grown = topic.assignment + added
            grown = await self._coordination.add_partitions(name, grown)
            await self._serve(Topic(name, grown, topic.configs), topic.count)

    async def _follow(self) -> None:
        async with self._changing:
            await self._reconcile()
            self.version += 1  # brokers have come or gone

    async def _reconcile(self) -> None:
        """Serve what the store says. Nothing is removed but what it says is being deleted."""
        topics = {topic.name: topic for topic in await self._coordination.topics()}
        for name in self.topics.keys() - topics.keys():
            _log.info("topic %s is gone", name, extra={"topic": name})
            await self._drop(name)
        for topic in topics.values():
            if topic.deleting:
                await self._remove(topic)
            else:
                await self._adopt(topic)

    async def _adopt(self, topic: Topic) -> None:
        """Serve a topic as the store has it."""
        served = self.topics.get(topic.name)
        if served is not None and topic.assignment[: served.count] != served.assignment:
            await self._drop(topic.name)  # another topic took the name meanwhile
            served = None
        if served is None:
            await self._serve(topic, 0)
            return
        if len(topic.assignment) > served.count:
            await self._serve(topic, served.count)
        if dict(topic.configs) != dict(served.configs):
            self._apply(served, topic.configs, self._resolve_or_default(topic))

    async def _configure(self, name: str, change: ConfigChange) -> None:
        def checked(before: Mapping[str, str]) -> Mapping[str, str]:
            after = change(before)
            self.config(after)
            return after

        async with self._changing:
            topic = self._known(name)
            configs = await self._coordination.change_configs(name, checked)
            if configs is None:
                raise InvalidTopicError(f"topic {name} was deleted meanwhile")
            self._apply(topic, configs, self.config(configs))

    def _apply(self, topic: HostedTopic, configs: Mapping[str, str], resolved: TopicConfig) -> None:
        topic.configs = dict(configs)
        for partition in topic.partitions.values():
            partition.configure(resolved)
        self._update_validates_records()
        self.version += 1

    def expire(self, now_ms: int) -> None:
        """Remove what retention says, and forget producers that have been silent for long."""
        self.producers.expire(self._producer_seconds)
        for partition in self.partitions():
            try:
                for segment in partition.expire(now_ms):
                    name = segment.path.name
                    about = partition.about | {"segment": name}
                    _log.info("%s: removed segment %s", partition, name, extra=about)
                    segment.remove_files()
            except OSError as error:
                _log.error("%s: retention failed: %s", partition, error, extra=partition.about)

    def close(self) -> None:
        """Flush and close every log; the flusher has stopped."""
        self.compactor.stop()
        if self.schema_ids is not None:
            self.schema_ids.close()
        for partition in self.partitions():
            failed = partition.failure is not None
            partition.stop("the broker is stopping")
            if failed:
                partition.log.abandon()
                continue
            try:
                partition.log.close()
            except (OSError, FlushFailedError) as error:
                _log.error("%s: last flush failed: %s", partition, error, extra=partition.about)
        self.topics.clear()

    def _known(self, name: str) -> HostedTopic:
        """The topic; it may have been deleted while the change waited for its turn."""
        topic = self.topics.get(name)
        if topic is None:
            raise InvalidTopicError(f"topic {name} was deleted meanwhile")
        return topic

    def _check_room(self, name: str, partitions: int) -> None:
        if self._count + partitions > self._max_partitions:
            raise TooManyPartitionsError(
                f"topic {name!r}: {partitions} partitions more than the {self._count} there are"
                f" would exceed this broker's limit of {self._max_partitions}",
                fix="delete topics that nobody uses, or start the broker with a larger"
                " --max-partitions",
            )

    async def _serve(self, topic: Topic, first: int) -> HostedTopic:
        """Serve what this broker has of a topic's partitions from `first` on."""
        config = self._resolve_or_default(topic)
        own = topic.of(self._broker)
        served = self.topics.get(topic.name) or HostedTopic(topic.name, (), {**topic.configs})
        await self._open(served, [index for index in own if index >= first], config)
        self.topics[topic.name] = served
        served.assignment = topic.assignment
        self._count += len(topic.assignment) - first
        self._update_validates_records()
        self.version += 1
        if own:
            await self._coordination.report_served(topic.name, len(own))
        return served

    async def _open(self, topic: HostedTopic, indexes: Iterable[int], config: TopicConfig) -> None:
        """Open partitions of a topic, as far as that goes."""
        name = topic.name
        folders = {index: self._path(name, index) for index in indexes}
        known = dict(topic.refused)
        opened = await asyncio.to_thread(open_logs, name, folders, config.log, known)
        for index, log in opened.logs.items():
            log.producers.join(self.producers)
            topic.partitions[index] = HostedPartition(name, index, log, config, self._flusher)
            topic.refused.pop(index, None)
        topic.refused |= opened.refused
        topic.opened_at = self._loop.time()
        self.cut_bytes += opened.cut_bytes

    async def reopen_partitions(self, name: str) -> None:
        """Open what the system did not let us open, if it does now; not more than once a second.

        So a topic that was made while the disk was full heals with the first client that asks.
        """
        topic = self.topics.get(name)
        if topic is not None and topic.may_reopen(self._loop.time()):
            await self._run_to_end(self._reopen_partitions(name))

    async def _reopen_partitions(self, name: str) -> None:
        async with self._changing:
            topic = self.topics.get(name)
            if topic is None or not topic.may_reopen(self._loop.time()):
                return
            retryable = [index for index, refusal in topic.refused.items() if refusal.retryable]
            stored = Topic(name, topic.assignment, topic.configs)
            await self._open(topic, retryable, self._resolve_or_default(stored))
            self._update_validates_records()
            self.version += 1

    def _resolve_or_default(self, topic: Topic) -> TopicConfig:
        """The topic's configs, or the defaults when this broker cannot follow them."""
        try:
            return self._resolve(topic.configs)
        except InvalidConfigError as error:
            _log.error(
                "topic %s: %s; its configs are not applied",
                topic.name,
                error,
                extra={"topic": topic.name},
            )
            return self._resolve({})

    def _resolve(self, configs: Mapping[str, str]) -> TopicConfig:
        return resolve_config(configs, self.defaults, show_unflushed=self._show_unflushed)

    def _update_validates_records(self) -> None:
        self.validates_records = any(
            partition.config.validates_records for partition in self.partitions()
        )

    def _path(self, topic: str, index: int) -> Path:
        return self._folder / f"{topic}-{index}"

    def _remove_folders(self, topic: str, indexes: Sequence[int]) -> None:
        for index in indexes:
            shutil.rmtree(self._path(topic, index), ignore_errors=True)
        sync_folder(self._folder)  # before the topic is forgotten: its name may be taken again
