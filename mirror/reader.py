"""The source's side of a session: a member of the mirror's group that commits only when told.

Rules:

- Partitions start at their committed offsets, or at the beginning. An offset of an earlier topic of
  the same name does not count. An offset that the source has
  removed is never skipped silently.
- Bytes bound the messages that librdkafka reads ahead.
- Callbacks of librdkafka raise nothing: `check` raises their errors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from headworks._kafka.client_properties import READ_AHEAD
from headworks._kafka.clients import KafkaConsumer
from headworks._kafka.damaged_batch import (
    DamagedBatch,
    DamagedBatchError,
    damaged_batch,
    offset_after,
)
from headworks._mirror.errors import (
    CONNECTION_CODES,
    DENIED_CODES,
    NO_TOPIC_CODES,
    TRANSIENT_CODES,
    Position,
    SessionEndedError,
)
from headworks._mirror.options import MirrorOptions, MirrorSource
from headworks._mirror.progress import MirrorProgress, TopicLag
from headworks._mirror.topics import MirroredTopics
from headworks.errors import FindingsError, RefusedError

_log = logging.getLogger("headworks.mirror")
_TIMEOUT_SECONDS = 10.0
_KEEP_ALIVE_SECONDS = 30.0  # well below the 5 minutes after which a group gives up a silent member
_MIN_QUEUED_MESSAGES = 100_000  # messages


class SourceReader:
    """Reads for a session; `before_revoke` is called while it still owns its partitions."""

    def __init__(
        self,
        options: MirrorOptions,
        source: MirrorSource,
        topics: MirroredTopics,
        progress: MirrorProgress,
        before_revoke: Callable[[], None],
    ) -> None:
        self._options, self._source, self._progress = options, source, progress
        self._topics = topics
        self._ids: dict[str, str] = {}  # of the topics, when their partitions were assigned
        self._before_revoke = before_revoke
        self.committed: dict[tuple[str, int], int] = {}  # of the assigned partitions
        self._subscribed: set[str] = set()
        self._failure: str | None = None  # the error of a callback, for `check`
        self._closing = False
        self._polled = time.monotonic()  # when it last polled, to stay a member
        # By partition: a damaged batch at which reading stopped.
        self._damaged: dict[tuple[str, int], DamagedBatch] = {}
        # By partition whose next offset is gone: the first and the end offset that are there.
        self._gaps: dict[tuple[str, int], tuple[int, int]] = {}
        self._consumer = KafkaConsumer(
            {
                **READ_AHEAD,
                "session.timeout.ms": 10_000,  # so long a killed mirror's partitions lie idle
                "topic.metadata.refresh.interval.ms": options.refresh_ms,  # for new partitions
                **source.client,
                "partition.assignment.strategy": "roundrobin",  # an eager one: all partitions go
                "group.id": options.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "queued.max.messages.kbytes": max(1, options.buffer_bytes // 2048),
                "queued.min.messages": _MIN_QUEUED_MESSAGES,
                "error_cb": self._client_error,
                "log_level": 2,
            }
        )

    def subscribe(self, names: set[str]) -> None:
        """Read these topics from now on."""
        if names == self._subscribed:
            return
        _log.info(
            "mirroring %d topics of %s",
            len(names),
            self._source.bootstrap,
            extra={"source": self._source.bootstrap, "topics": sorted(names)},
        )
        if names:
            callbacks = {"on_assign": self._assigned, "on_revoke": self._revoked}
            self._consumer.subscribe(sorted(names), **callbacks)
        else:
            self._consumer.unsubscribe()
        self._subscribed = names

    def read(self, most: int, timeout: float) -> list[confluent_kafka.Message]:
        """Return available messages, or the first ones to arrive within `timeout` seconds."""
        found = self._consumer.consume(1, timeout)
        if found:
            found += self._consumer.consume(most, 0)
        self._polled = time.monotonic()
        return self._messages(found)

    @property
    def held_up(self) -> bool:
        """Whether reading stopped in some partition: at a damaged batch, or before a gap."""
        return bool(self._damaged or self._gaps)

    def step_over(self) -> None:
        """Commit the offset after each damaged batch and gap, and raise SessionEndedError.

        Everything that was read before must be committed, because the source may have removed it
        since. DamagedBatchError without `skip_damaged`, and FindingsError without `skip_lost`.
        """
        reached = self._after_gaps()
        for at, found in self._damaged.items():
            batch = replace(found, offset=max(found.offset, self.committed.get(at, 0)))
            if not self._options.skip_damaged:
                raise DamagedBatchError(
                    batch,
                    fix="restore the partition on the source from a copy, or skip this batch alone"
                    " with --skip-damaged",
                )
            client = {**self._source.client, "group.id": self._options.group}
            reached[at] = offset_after(client, batch)
            _log.warning(
                "source %s: %s: skipped up to offset %d: %s",
                self._source.bootstrap,
                batch.place,
                reached[at],
                batch.reason,
                extra={"source": self._source.bootstrap, "topic": batch.topic},
            )
            self._progress.damaged[batch.topic] += reached[at] - batch.offset
        self.commit(reached)
        raise SessionEndedError(f"source {self._source.bootstrap}: damage or a gap was skipped")

    def _after_gaps(self) -> dict[tuple[str, int], int]:
        """Return the first offset after each gap, and count what is lost."""
        reached = {}
        for (topic, index), (low, high) in self._gaps.items():
            wanted = self.committed.get((topic, index), 0)
            what = (
                f"source {self._source.bootstrap}, {topic} partition {index}: offset {wanted} or a "
                f"later one is wanted, {low} to {high} are there"
            )
            if not self._options.skip_lost:
                raise FindingsError(
                    f"{what}: what lay between was removed before it was mirrored, or the topic"
                    " was recreated",
                    fix="go on at what is there with --skip-lost",
                )
            _log.warning("%s; going on at %d", what, low, extra={"topic": topic})
            self._progress.lost[topic] += max(0, low - wanted)
            reached[topic, index] = low
        return reached

    def keep_alive(self) -> list[confluent_kafka.Message]:
        """Stay a member of the group; call it often while nothing is read.

        It returns messages only if partitions have just been assigned.
        """
        if time.monotonic() - self._polled < _KEEP_ALIVE_SECONDS:
            return []
        assigned = self._consumer.assignment()
        self._consumer.pause(assigned)
        found = self._consumer.consume(1, 0)
        if self._consumer.assignment() == assigned:
            self._consumer.resume(assigned)
        self._polled = time.monotonic()
        return self._messages(found)

    def commit(self, position: Position) -> None:
        """Commit on the source, synchronously. Raises SessionEndedError."""
        changed = {
            at: offset for at, offset in position.items() if self.committed.get(at) != offset
        }
        if not changed:
            return
        places = [
            TopicPartition(*at, offset, self._ids.get(at[0], "")) for at, offset in changed.items()
        ]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise SessionEndedError(f"the source did not commit: {error.args[0].str()}") from None
        self.committed.update(changed)

    def is_committed(self, position: Position) -> bool:
        """Return whether everything before `position` is committed, or owned by another member."""
        mine = {(place.topic, place.partition) for place in self._consumer.assignment()}
        return all(
            self.committed.get(at, 0) >= offset for at, offset in position.items() if at in mine
        )

    def lags(self, last_times: Mapping[str, int]) -> dict[str, TopicLag]:
        """Return the lag of each topic by the last fetched ends; `last_times` in milliseconds."""
        left: dict[str, int] = {}
        for place in self._consumer.assignment():
            _, high = self._consumer.get_watermark_offsets(place, cached=True)
            at = self.committed.get((place.topic, place.partition), 0)
            left[place.topic] = left.get(place.topic, 0) + max(0, high - at)
        now = time.time()
        return {
            topic: TopicLag(messages, _age(now, last_times.get(topic)) if messages else 0.0)
            for topic, messages in left.items()
        }

    def check(self) -> None:
        """Raise SessionEndedError for an error of a callback."""
        if self._failure is not None:
            raise SessionEndedError(self._failure)

    def close(self) -> None:
        """Leave the group without a commit."""
        self._closing = True
        self._consumer.close()

    def _messages(self, found: list[confluent_kafka.Message]) -> list[confluent_kafka.Message]:
        messages = []
        for message in found:
            at = message.topic() or "", message.partition() or 0
            if at in self._damaged or at in self._gaps:
                continue  # librdkafka has lost its place there
            problem, batch = message.error(), damaged_batch(message)
            if problem is None:
                messages.append(message)
            elif batch is not None:
                self._progress.errors[problem.name().lower()] += 1
                self._damaged[batch.topic, batch.partition] = batch
            else:
                self._handle_error(message, problem)
        self.check()
        return messages

    def _handle_error(self, message: confluent_kafka.Message, problem: KafkaError) -> None:
        code = problem.code()
        self._progress.errors[problem.name().lower()] += 1
        if code == KafkaError._AUTO_OFFSET_RESET:
            self._note_gap(message)
        elif code in DENIED_CODES:
            raise RefusedError(
                f"the source {self._source.bootstrap} refuses: {problem.str()}",
                fix=f"let the mirror's user read the topics and the group {self._options.group}",
            )
        elif code in TRANSIENT_CODES or code in NO_TOPIC_CODES:
            _log.warning(
                "source %s: %s",
                self._source.bootstrap,
                problem.str(),
                extra={"source": self._source.bootstrap, "error": problem.name()},
            )
        else:
            raise SessionEndedError(f"source {self._source.bootstrap}: {problem.str()}")

    def _note_gap(self, message: confluent_kafka.Message) -> None:
        topic, index = message.topic() or "", message.partition() or 0
        if topic in self._topics.recreated():
            raise SessionEndedError(
                f"the source has recreated {topic}: mirroring it from the start"
            )
        place = TopicPartition(topic, index)
        low, high = self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT_SECONDS)
        self._gaps[topic, index] = (low, high)

    def _assigned(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        try:
            places = consumer.committed(partitions, timeout=_TIMEOUT_SECONDS)
        except KafkaException as error:
            self._failure = f"committed offsets cannot be read: {error.args[0].str()}"
            return
        self._ids |= self._topics.ids
        for place in places:
            known = self._ids.get(place.topic)
            if place.metadata and known is not None and place.metadata != known:
                place.offset = OFFSET_BEGINNING  # an offset of an earlier topic of this name
            self.committed[place.topic, place.partition] = max(0, place.offset)
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
        consumer.assign(places)

    def _revoked(self, _consumer: object, _partitions: list[TopicPartition]) -> None:
        if not self._closing and self._failure is None:
            try:
                self._before_revoke()
            except Exception as error:
                self._failure = f"no checkpoint before a rebalance: {error}"
        self.committed.clear()
        self._damaged.clear()
        self._gaps.clear()

    def _client_error(self, error: KafkaError) -> None:
        if self._closing:
            return
        self._progress.errors[f"source:{error.name().lower()}"] += 1
        # Warn once that all brokers are down, and not about each attempt to connect.
        level = logging.DEBUG if error.code() in CONNECTION_CODES else logging.WARNING
        _log.log(
            level,
            "source %s: %s",
            self._source.bootstrap,
            error.str(),
            extra={"source": self._source.bootstrap, "error": error.name()},
        )
        if error.fatal():
            self._failure = self._failure or error.str()


def _age(now: float, last: int | None) -> float | None:
    return None if last is None else max(0.0, now - last / 1000)
