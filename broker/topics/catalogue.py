"""All topics that this broker serves, with their partitions.

Rules:

- The coordination store decides which topics exist; the folder of a partition is made after the
  topic is stored and removed before the topic is forgotten.
- A partition whose log must not be served is `refused`, with the reason; the others are served.
- `version` grows with every change, so that replies may be cached.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.coordination import Coordination, Topic, TopicExistsError
from broker.log import FlushFailedError, open_log
from broker.topics.config import InvalidConfigError, TopicConfig, resolve_config
from broker.topics.flusher import Flusher
from broker.topics.partition import Partition
from headworks.errors import CorruptError, UsageError

__all__ = ["Catalogue", "InvalidTopicError", "ServedTopic"]

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class InvalidTopicError(UsageError):
    """A name that a topic cannot have."""


@dataclass(slots=True)
class ServedTopic:
    """A topic and its partitions; `refused` are those that cannot be served, with the reason."""

    name: str
    configs: Mapping[str, str]
    partitions: dict[int, Partition] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many partitions the topic has."""
        return len(self.partitions) + len(self.refused)


class Catalogue:
    """The topics of a broker. Filled by `load`."""

    def __init__(
        self,
        folder: Path,
        coordination: Coordination,
        flusher: Flusher,
        defaults: Mapping[str, str],
        *,
        show_unflushed: bool = False,
    ) -> None:
        self.topics: dict[str, ServedTopic] = {}
        self.defaults = defaults
        self.version = 0
        self.cut_bytes = 0
        self._folder = folder
        self._coordination = coordination
        self._flusher = flusher
        self._show_unflushed = show_unflushed
        self._changing = asyncio.Lock()

    @property
    def folder(self) -> Path:
        """Where the logs are."""
        return self._folder

    async def load(self) -> None:
        """Open every topic of the store; finish deletions that a crash interrupted."""
        self._folder.mkdir(parents=True, exist_ok=True)
        known = set()
        for topic in await self._coordination.topics():
            if topic.deleting:
                self._remove_folders(topic.name, range(topic.partitions))
                await self._coordination.finish_delete(topic.name)
                continue
            self._serve(topic, range(topic.partitions))
            known |= {f"{topic.name}-{index}" for index in range(topic.partitions)}
        for path in self._folder.iterdir():
            if path.name not in known:
                _log.warning("%s belongs to no topic; it is left alone", path)

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, or None if it is not served."""
        served = self.topics.get(topic)
        return None if served is None else served.partitions.get(index)

    def partitions(self) -> Iterator[Partition]:
        """Every served partition."""
        for topic in tuple(self.topics.values()):
            yield from tuple(topic.partitions.values())

    def config(self, configs: Mapping[str, str]) -> TopicConfig:
        """A topic's configs over this broker's defaults; InvalidConfigError if they are wrong."""
        return resolve_config(configs, self.defaults, show_unflushed=self._show_unflushed)

    def check_new(self, name: str, configs: Mapping[str, str]) -> None:
        """InvalidTopicError, TopicExistsError or InvalidConfigError if it cannot be created."""
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise InvalidTopicError(
                f"topic name {name[:300]!r} is not 1 to 249 of letters, digits, '.', '_', '-'"
            )
        if name in self.topics:
            raise TopicExistsError(name)
        self.config(configs)

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> ServedTopic:
        """Create a topic. Raises what `check_new` raises."""
        async with self._changing:
            self.check_new(name, configs)
            for index in range(partitions):
                if self._path(name, index).exists():
                    raise InvalidTopicError(
                        f"{self._path(name, index)} is in the way: it belongs to no known topic"
                    )
            topic = Topic(name, partitions, dict(configs))
            await self._coordination.create_topic(topic)
            return self._serve(topic, range(partitions))

    async def delete(self, name: str) -> None:
        """Delete a topic that is served; when this returns it is gone."""
        async with self._changing:
            topic = self.topics.pop(name)
            self.version += 1
            await self._coordination.begin_delete(name)
            for partition in topic.partitions.values():
                partition.end("the topic was deleted")  # its files close with the last reader
            await asyncio.to_thread(self._remove_folders, name, range(topic.count))
            await self._coordination.finish_delete(name)

    async def add_partitions(self, name: str, count: int) -> None:
        """Give a served topic more partitions, up to `count`."""
        async with self._changing:
            topic = self.topics[name]
            await self._coordination.set_partitions(name, count)
            self._serve(Topic(name, count, topic.configs), range(topic.count, count))

    async def configure(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace the configs of a served topic. InvalidConfigError if they are wrong."""
        async with self._changing:
            resolved = self.config(configs)
            await self._coordination.set_configs(name, configs)
            topic = self.topics[name]
            topic.configs = dict(configs)
            for partition in topic.partitions.values():
                partition.configure(resolved)
            self.version += 1

    def expire(self, now_ms: int) -> None:
        """Remove what retention says."""
        for partition in self.partitions():
            try:
                for segment in partition.log.expire(now_ms):
                    _log.info("%s: removed segment %s", partition, segment.path.name)
                    segment.remove_files()
            except (OSError, FlushFailedError) as error:
                _log.error("%s: retention failed: %s", partition, error)

    def close(self) -> None:
        """Flush and close every log; the flusher has stopped."""
        for partition in self.partitions():
            failed = partition.failure is not None
            partition.end("the broker is stopping")
            if failed:
                partition.log.abandon()
                continue
            try:
                partition.log.close()
            except (OSError, FlushFailedError) as error:
                _log.error("%s: last flush failed: %s", partition, error)
        self.topics.clear()

    def _serve(self, topic: Topic, indexes: range) -> ServedTopic:
        try:
            config = self.config(topic.configs)
        except InvalidConfigError as error:
            _log.error("topic %s: %s; its configs are not applied", topic.name, error)
            config = self.config({})
        served = self.topics.setdefault(topic.name, ServedTopic(topic.name, dict(topic.configs)))
        for index in indexes:
            try:
                log, recovery = open_log(self._path(topic.name, index), config.log)
            except (CorruptError, OSError) as error:
                _log.error("partition %s-%d is not served: %s", topic.name, index, error)
                served.refused[index] = str(error)
                continue
            if recovery.cut_bytes:
                self.cut_bytes += recovery.cut_bytes
                _log.warning(
                    "partition %s-%d: cut %d bytes after offset %d: %s",
                    topic.name,
                    index,
                    recovery.cut_bytes,
                    log.end,
                    recovery.reason,
                )
            served.partitions[index] = Partition(topic.name, index, log, config, self._flusher)
        self.version += 1
        return served

    def _path(self, topic: str, index: int) -> Path:
        return self._folder / f"{topic}-{index}"

    def _remove_folders(self, topic: str, indexes: range) -> None:
        for index in indexes:
            shutil.rmtree(self._path(topic, index), ignore_errors=True)
