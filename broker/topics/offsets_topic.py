"""The topic `__consumer_offsets`: a copy of the committed offsets, for the programs that read it.

Rules:

- The coordination store has the offsets. The topic is written after it, and no client writes it.
- Changes within a tenth of a second become one batch. A change that cannot be written stays due,
  whatever the error: it must end neither the copy nor the broker's orderly stop.
- At the start the topic is compared with the store, and gets what it lacks. So a crash, a restored
  copy, or a broker that ran without the topic leave nothing false in it.
- A topic that cannot be read is made again, with another id: it holds nothing of its own.
- A topic that a client created under this name is left alone, and the broker does not start.
- A broker that runs without the topic removes it: it would get old.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from headworks._broker.coordination import CommittedOffset, Coordination, LocalCoordination
from headworks._broker.log import PartitionLog
from headworks._broker.repeated_failure import RepeatedFailure
from headworks._broker.topics.hosted_topics import HostedTopics
from headworks._broker.topics.offset_records import (
    OffsetKey,
    decode_key,
    decode_value,
    encode_offset,
)
from headworks._broker.topics.partition import HostedPartition, StorageFailureError
from headworks._broker.topics.topic import OFFSETS_TOPIC, HostedTopic
from headworks._broker.topics.topic_changes import TopicChanges
from headworks._kafka.records import InvalidBatchError, check_batch, encode_batch, iter_batches
from headworks._kafka.records.record import iter_records
from headworks.errors import CorruptError, UsageError

_log = logging.getLogger(__name__)
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
_COLLECT_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_BATCH_RECORDS = 500
_READ_BYTES = 1 << 20
_UNREADABLE = (CorruptError, InvalidBatchError, OSError, ValueError, struct.error)


class OffsetsTopic:
    """The topic of a broker without ZooKeeper, from `open` on. `clock` is Unix time in seconds."""

    def __init__(
        self,
        hosted: HostedTopics,
        changes: TopicChanges,
        coordination: LocalCoordination,
        clock: Callable[[], float],
    ) -> None:
        self._hosted = hosted
        self._changes = changes
        self._coordination = coordination
        self._clock = clock
        self._due: dict[OffsetKey, CommittedOffset | None] = {}  # changes to write, in order
        self._changed = asyncio.Event()
        self._failures = RepeatedFailure(_log, f"{OFFSETS_TOPIC} cannot be written now")

    async def open(self) -> None:
        """Create the topic unless it exists, and write what it lacks.

        Raises UsageError if a topic of this name is another's.
        """
        found = self._hosted.topics.get(OFFSETS_TOPIC)
        if found is not None and not found.internal:
            raise UsageError(
                f"topic {OFFSETS_TOPIC} exists, and is not what --offsets-topic serves",
                fix="start the broker without --offsets-topic, and delete the topic",
            )
        copied = None if found is None else self._copied(found)
        if copied is None:
            if found is not None:
                await self._changes.delete(OFFSETS_TOPIC)
            await self._changes.create_internal(OFFSETS_TOPIC, _CONFIGS)
        copied = copied or {}
        # The delete may have removed offsets. From here to the observer nothing else may run: the
        # store of a single broker answers without a wait.
        stored = await self._stored()
        self._due.update({key: at for key, at in stored.items() if copied.get(key) != at})
        self._due.update({key: None for key in copied if key not in stored})
        self._coordination.committed.observer = self._observe
        if self._due:
            self._changed.set()

    async def keep_up(self) -> None:
        """Write each change soon after it is stored, until this is cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_COLLECT_SECONDS)
            self._changed.clear()
            try:
                while self._due:
                    self.write_some()
                    await asyncio.sleep(0)  # let clients be served
                self._failures.recovered({})
            except Exception as error:
                self._log_failure(error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()

    def write_some(self) -> None:
        """Write a batch of the changes that are due. Raises StorageFailureError."""
        partition = self._partition()
        if partition is None:
            raise StorageFailureError("its partition is not served now")
        now_ms = int(self._clock() * 1000)
        taken = dict(islice(self._due.items(), _BATCH_RECORDS))
        records = [
            encode_offset(key, at, now_ms)._replace(offset=number)
            for number, (key, at) in enumerate(taken.items())
        ]
        batch = bytearray(encode_batch(records))
        partition.stage(memoryview(batch), check_batch(batch))
        partition.commit(urgent=False)
        for key in taken:
            del self._due[key]

    def close(self) -> None:
        """Write what is due, before the broker flushes its logs and stops."""
        try:
            while self._due:
                self.write_some()
        except Exception as error:  # the next start writes it, and the logs must be flushed
            self._log_failure(error)

    def _log_failure(self, error: Exception) -> None:
        if not self._failures.ongoing and not isinstance(error, StorageFailureError):
            about = {"topic": OFFSETS_TOPIC}
            _log.error("writing %s failed", OFFSETS_TOPIC, exc_info=error, extra=about)
        self._failures.failed(error, {"topic": OFFSETS_TOPIC})

    def _observe(
        self, group: str, offsets: Mapping[tuple[str, int], CommittedOffset | None]
    ) -> None:
        for (topic, index), at in offsets.items():
            place = OffsetKey(group, topic, index)
            self._due[place] = at and replace(at, topic_id=None)
        self._changed.set()

    def _partition(self) -> HostedPartition | None:
        return self._hosted.partition(OFFSETS_TOPIC, 0)

    async def _stored(self) -> dict[OffsetKey, CommittedOffset]:
        """Return the offsets of the store, without the ids of their topics."""
        return {
            OffsetKey(group, topic, index): CommittedOffset(at.offset, at.leader_epoch, at.metadata)
            for group in await self._coordination.groups()
            for (topic, index), at in (await self._coordination.offsets(group)).items()
        }

    def _copied(self, topic: HostedTopic) -> dict[OffsetKey, CommittedOffset] | None:
        """Return the offsets in the topic; None if it cannot be read."""
        partition = topic.partitions.get(0)
        try:
            if partition is not None:
                return _last_offsets(partition.log)
            reason = topic.refused[0].reason
        except _UNREADABLE as error:
            reason = str(error)
        _log.warning(
            "%s cannot be read, and is made again: %s",
            OFFSETS_TOPIC,
            reason,
            extra={"topic": OFFSETS_TOPIC, "error": reason},
        )
        return None


async def open_offsets_topic(
    hosted: HostedTopics,
    changes: TopicChanges,
    coordination: Coordination,
    clock: Callable[[], float],
    *,
    wanted: bool,
) -> OffsetsTopic | None:
    """Return the topic, open, if it is `wanted`; else remove it.

    Raises UsageError in a cluster, and if a topic of its name is another's.
    """
    if not wanted:
        found = hosted.topics.get(OFFSETS_TOPIC)
        if found is not None and found.internal:
            await changes.delete(OFFSETS_TOPIC)
        return None
    if not isinstance(coordination, LocalCoordination):
        raise UsageError(
            "--offsets-topic needs a broker without ZooKeeper",
            fix="remove it, or start a broker without --zookeeper",
        )
    topic = OffsetsTopic(hosted, changes, coordination, clock)
    await topic.open()
    return topic


def _last_offsets(log: PartitionLog) -> dict[OffsetKey, CommittedOffset]:
    """Return the last offset of each key in a log. Raises one of `_UNREADABLE`."""
    found: dict[OffsetKey, CommittedOffset] = {}
    for key, value in _keys_and_values(log):
        if value is None:
            found.pop(decode_key(key), None)
        else:
            found[decode_key(key)] = decode_value(value)
    return found


def _keys_and_values(log: PartitionLog) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the records of a log that was just opened, in order; nobody writes it meanwhile."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, _READ_BYTES)
        data = os.pread(piece.descriptor.fd, piece.size, piece.position)
        begin = offset
        for batch in iter_batches(data):
            for record in iter_records(data, batch):
                yield record.key or b"", record.value
            offset = batch.base_offset + batch.last_offset_delta + 1
        if not piece.size:
            return  # compaction removed what was at the end
        if offset == begin:
            raise InvalidBatchError("torn", f"no whole batch at offset {offset}")
