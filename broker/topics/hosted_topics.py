"""The topics that this broker hosts, with their configs and open partitions.

Rules:

- Only `TopicChanges` calls the methods that change which topics are hosted, one change at a time.
- A partition whose log must not or cannot be opened is `refused`, with the reason. All others are
  served.
- Logs are opened in a thread: no change makes clients of other topics wait for the disk.
- The number of partitions is bounded: each keeps files open, and a client's typing error may
  create a topic.
- `version` grows with every change, so that replies may be cached.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from headworks._atomic_file import sync_folder
from headworks._broker.coordination import Topic, TopicExistsError
from headworks._broker.log import MAX_PRODUCERS, FlushFailedError, ProducerLimit
from headworks._broker.topics.begun import FILE as BEGUN_FILE
from headworks._broker.topics.begun import BegunPartitions
from headworks._broker.topics.compactor import Compactor
from headworks._broker.topics.config import (
    VALIDATION,
    InvalidConfigError,
    SchemaValidation,
    TopicConfig,
    resolve_config,
)
from headworks._broker.topics.flusher import Flusher
from headworks._broker.topics.known_schemas import SCHEMAS_FILE
from headworks._broker.topics.opening import open_logs
from headworks._broker.topics.partition import HostedPartition
from headworks._broker.topics.schema_ids import SchemaIdCache
from headworks._broker.topics.scrubber import Scrubber
from headworks._broker.topics.topic import (
    HostedTopic,
    InvalidTopicError,
    TooManyPartitionsError,
    is_topic_name,
)
from headworks._kafka.error_codes import ErrorCode

MAX_PARTITIONS = 10_000  # of the whole cluster
SCRUB_MB_PER_SECOND = 8.0
PRODUCER_SECONDS = 86_400.0  # after which an idempotent producer expires

_log = logging.getLogger(__name__)


class HostedTopics:
    """The topics of a broker. `TopicChanges` fills it."""

    def __init__(
        self,
        folder: Path,
        flusher: Flusher,
        defaults: Mapping[str, str],
        *,
        show_unflushed: bool = False,
        max_partitions: int = MAX_PARTITIONS,
        registry: str | None = None,
        compaction_seconds: float = 15.0,
        scrub_mb_per_second: float = SCRUB_MB_PER_SECOND,
        max_producers: int = MAX_PRODUCERS,
        producer_seconds: float = PRODUCER_SECONDS,
        broker: int = 1,
    ) -> None:
        self.broker = broker  # the id of this broker
        self.folder = folder  # of all logs, one folder for each partition
        self.topics: dict[str, HostedTopic] = {}  # by name, also those with no partition here
        self.names: dict[bytes, str] = {}  # of the topics, by the bytes of their ids
        self.defaults = defaults  # configs of topics that do not set them
        self.version = 0  # grows with every change
        self.cut_bytes = 0  # truncated from torn tails since the start
        self.producers = ProducerLimit(max_producers)  # of all partitions together
        self.opened_topics: frozenset[str] = frozenset()  # those whose batches are looked into
        self.schema_ids = (
            None if registry is None else SchemaIdCache(registry, folder.with_name(SCHEMAS_FILE))
        )
        self.compactor = Compactor(self.partitions, interval=compaction_seconds)
        self.scrubber = Scrubber(self.partitions, mb_per_second=scrub_mb_per_second)
        self._begun = BegunPartitions(folder.with_name(BEGUN_FILE))
        self._flusher = flusher
        self._show_unflushed = show_unflushed
        self._max_partitions = max_partitions
        self._producer_seconds = producer_seconds
        self._partition_count = 0  # of all topics, on any broker
        self._loop = asyncio.get_running_loop()

    # -- look up -----------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> HostedPartition | None:
        """Return the partition, None if it is not served here."""
        hosted = self.topics.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def by_id(self, topic_id: UUID | None) -> HostedTopic | None:
        """Return the topic with this id."""
        name = None if topic_id is None else self.names.get(topic_id.bytes)
        return None if name is None else self.topics.get(name)

    def name_of(self, topic: str | bytes) -> str | None:
        """Return the name of a topic that a request names by its name, or by its id's bytes."""
        return topic if isinstance(topic, str) else self.names.get(topic)

    def partitions(self) -> Iterator[HostedPartition]:
        """Yield every served partition."""
        for topic in tuple(self.topics.values()):
            yield from tuple(topic.partitions.values())

    def damage(self) -> Iterator[str]:
        """Yield the damage in all partitions here, a line each, those that are refused first."""
        for topic in tuple(self.topics.values()):
            for index, failure in tuple(topic.refused.items()):
                yield f"{topic.name}-{index} is refused: {failure.reason}".replace("\n", "")
        for partition in self.partitions():
            for what in tuple(partition.damage):
                yield f"{partition}: {what}".replace("\n", "")

    def known(self, name: str) -> HostedTopic:
        """Return the topic; InvalidTopicError if it was deleted before a change got its turn."""
        topic = self.topics.get(name)
        if topic is None:
            raise InvalidTopicError(f"topic {name} was deleted meanwhile")
        return topic

    def path(self, topic: str, index: int) -> Path:
        """Return the folder of a partition."""
        return self.folder / f"{topic}-{index}"

    # -- check -------------------------------------------------------------------------------

    def config(self, configs: Mapping[str, str]) -> TopicConfig:
        """Resolve a topic's configs over this broker's defaults; InvalidConfigError if invalid."""
        resolved = self._resolve(configs)
        wanted = resolved.schema_validation
        if self.schema_ids is None and wanted is not SchemaValidation.OFF:
            raise InvalidConfigError(
                f"config {VALIDATION}={wanted.value} needs a registry to ask, and this broker has"
                " none",
                fix="start the broker with --registry URL",
            )
        return resolved

    def check_new(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Check that a topic can be created.

        Raises InvalidTopicError, TopicExistsError, InvalidConfigError, or TooManyPartitionsError.
        """
        if not is_topic_name(name):
            raise InvalidTopicError(
                f"topic name {name[:300]!r} is not 1 to 249 of letters, digits, '.', '_', '-'"
            )
        if name in self.topics:
            raise TopicExistsError(f"topic {name!r} exists already")
        self.config(configs)
        self.check_room(name, partitions)

    def check_room(self, name: str, partitions: int) -> None:
        """Raise TooManyPartitionsError if the cluster cannot have `partitions` more."""
        if self._partition_count + partitions > self._max_partitions:
            raise TooManyPartitionsError(
                f"topic {name!r}: {partitions} partitions more than the {self._partition_count}"
                f" there are would exceed this broker's limit of {self._max_partitions}",
                fix="delete topics that nobody uses, or start the broker with a larger"
                " --max-partitions",
            )

    # -- change, for `TopicChanges` ----------------------------------------------------------

    async def host(self, topic: Topic, first: int) -> HostedTopic:
        """Host a topic: open this broker's partitions from the index `first` on."""
        config = self._resolve_or_default(topic)
        hosted = self.topics.get(topic.name) or HostedTopic(
            topic.name, (), {**topic.configs}, topic.topic_id
        )
        own = [index for index in topic.of(self.broker) if index >= first]
        await self._open_partitions(hosted, own, config)
        self.topics[topic.name] = hosted
        self.names[hosted.topic_id.bytes] = topic.name
        hosted.assignment = topic.assignment
        self._partition_count += len(topic.assignment) - first
        self._changed()
        return hosted

    async def reopen(self, topic: HostedTopic) -> None:
        """Open the refused partitions for which a retry makes sense."""
        retried = [index for index, failure in topic.refused.items() if failure.retryable]
        stored = Topic(topic.name, topic.assignment, topic.configs)
        await self._open_partitions(topic, retried, self._resolve_or_default(stored))
        self._changed()

    async def _open_partitions(
        self, topic: HostedTopic, indexes: Iterable[int], config: TopicConfig
    ) -> None:
        name = topic.name
        folders = {index: self.path(name, index) for index in indexes}
        known = dict(topic.refused)
        opened = await asyncio.to_thread(open_logs, name, folders, config.log, known, self._begun)
        for index, log in opened.logs.items():
            log.producers.join(self.producers)
            topic.partitions[index] = HostedPartition(
                name, index, log, config, self._flusher, internal=topic.internal
            )
            topic.refused.pop(index, None)
        topic.refused |= opened.refused
        topic.opened_at = self._loop.time()
        self.cut_bytes += opened.cut_bytes

    def apply_configs(self, topic: HostedTopic, configs: Mapping[str, str]) -> None:
        """Apply changed configs, or the defaults if this broker cannot resolve them."""
        resolved = self._resolve_or_default(Topic(topic.name, topic.assignment, configs))
        topic.configs = dict(configs)
        for partition in topic.partitions.values():
            partition.configure(resolved)
        self._changed()

    async def drop(self, name: str) -> None:
        """Stop hosting a topic; its files stay."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self._partition_count -= topic.count
        self.names.pop(topic.topic_id.bytes, None)
        self.version += 1
        for partition in topic.partitions.values():
            partition.stop("the topic was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partition.log.producers.leave()
            partition.log.close_when_unused()
            await self.compactor.release(partition)
        self._changed()

    async def remove_folders(self, topic: str, indexes: Sequence[int]) -> None:
        """Delete the folders of partitions durably, in a thread."""
        await asyncio.to_thread(self._remove_folders, topic, indexes)

    def _remove_folders(self, topic: str, indexes: Sequence[int]) -> None:
        for index in indexes:
            shutil.rmtree(self.path(topic, index), ignore_errors=True)
        self._begun.remove(self.path(topic, index).name for index in indexes)
        sync_folder(self.folder)  # before the topic is forgotten: its name may be used again

    def _changed(self) -> None:
        self.opened_topics = frozenset(
            p.topic for p in self.partitions() if p.config.opens_batches and not p.internal
        )
        self.version += 1

    # -- retain and close --------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Remove expired segments of all partitions, and expired producers."""
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
        """Flush and close every log. The flusher must have stopped."""
        self.compactor.stop()
        self.scrubber.stop()
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

    # -- configs -----------------------------------------------------------------------------

    def _resolve_or_default(self, topic: Topic) -> TopicConfig:
        """Resolve a topic's configs, or the defaults if this broker does not know a config."""
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
