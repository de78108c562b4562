"""The log offsets that lag is measured against, offsets by time, and times by offset.

Rules:

- One call returns the start offsets, end offsets, or offsets by time of all partitions.
- A time by offset takes a read. It is cached, because the message at an offset does not change, and
  the cache is bounded. One read serves every partition, and offsets near each other.
- A time that cannot be read before the deadline is missing, and never a guess.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka.admin._listoffsets import OffsetSpec

from headworks._kafka.client_properties import client_properties
from headworks._kafka.clients import KafkaConsumer
from headworks._kafka.log_offsets import EARLIEST, LATEST, at_time, list_several
from headworks.groups._classic import ClassicGroups
from headworks.groups._model import PartitionOffset, TopicPartition

_TIMEOUT_SECONDS = 15.0
_MAX_REMEMBERED_OFFSETS = 100_000
_CONSUME_SECONDS = 0.1
_MAX_MESSAGES = 500
_NEARBY_OFFSETS = 500


class LogBounds(NamedTuple):
    """The log start offset and the log end offset of a partition."""

    start: int
    end: int


class LogOffsets:
    """Looks up the log offsets of partitions."""

    def __init__(self, broker: ClassicGroups) -> None:
        self._broker = broker

    def of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
        """Return the bounds of logs, without partitions that are missing or have no leader now."""
        starts, ends = self._ask(partitions, EARLIEST, LATEST)
        return {
            partition: LogBounds(starts[partition], max(starts[partition], ends[partition]))
            for partition in starts.keys() & ends.keys()
        }

    def at(
        self, partitions: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first message at or after a time in ms, if there is one."""
        [found] = self._ask(partitions, at_time(timestamp))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def _ask(
        self, partitions: Collection[TopicPartition], *specs: OffsetSpec
    ) -> list[dict[TopicPartition, int]]:
        admin = self._broker.admin
        several = list_several(admin, partitions, specs, timeout=_TIMEOUT_SECONDS)
        errors = [error for listed in several for error in listed.errors.values()]
        self._broker.check("look up the log offsets", errors)
        return [
            {TopicPartition(*place): offset for place, offset in listed.offsets.items()}
            for listed in several
        ]


class TimestampLookup:
    """Looks up the times of messages by their offsets; not shared between threads."""

    def __init__(self, bootstrap: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bootstrap = bootstrap
        self._clock = clock
        self._known: OrderedDict[PartitionOffset, int] = OrderedDict()  # the least used first
        self._reader: KafkaConsumer | None = None  # opened at the first read

    def of(
        self, positions: Iterable[PartitionOffset], timeout: float
    ) -> dict[PartitionOffset, int]:
        """Return the timestamps (ms) of the first messages at or after each position.

        A position is missing from the result if its message was not read within `timeout` seconds.
        """
        deadline = self._clock() + timeout
        wanted = set(positions)
        missing: dict[TopicPartition, list[PartitionOffset]] = {}
        for position in sorted(wanted - self._known.keys()):
            missing.setdefault(TopicPartition(position.topic, position.partition), []).append(
                position
            )
        while missing and self._clock() < deadline:
            self._read(missing, deadline)
            missing = {partition: left for partition, left in missing.items() if left}
        found = {position: self._known[position] for position in wanted & self._known.keys()}
        for position in found:
            self._known.move_to_end(position)
        while len(self._known) > _MAX_REMEMBERED_OFFSETS:
            self._known.popitem(last=False)
        return found

    def close(self) -> None:
        """Close the connections."""
        if self._reader is not None:
            self._reader.close()

    def _read(
        self, missing: Mapping[TopicPartition, list[PartitionOffset]], deadline: float
    ) -> None:
        """Read from the first position of each partition, and past those that are near it."""
        reader = self._reader = self._reader or KafkaConsumer(_reader_properties(self._bootstrap))
        reading = set(missing)
        reader.assign([confluent_kafka.TopicPartition(*left[0]) for left in missing.values()])
        while reading and self._clock() < deadline:
            done = []
            for message in reader.consume(_MAX_MESSAGES, _CONSUME_SECONDS):
                partition = TopicPartition(message.topic() or "", message.partition() or 0)
                if partition in reading and self._record_time(message, missing[partition]):
                    reading.discard(partition)
                    done.append(confluent_kafka.TopicPartition(*partition))
            if done and reading:
                reader.incremental_unassign(done)
        reader.unassign()

    def _record_time(self, message: confluent_kafka.Message, left: list[PartitionOffset]) -> bool:
        """Record a message's time; return whether no further position of its partition is near."""
        if message.error() is not None:
            left.pop(0)
            return True
        offset = message.offset() or 0
        while left and left[0].offset <= offset:
            self._known[left.pop(0)] = message.timestamp()[1]
        return not left or left[0].offset > offset + _NEARBY_OFFSETS


def _reader_properties(bootstrap: str) -> dict[str, Any]:
    return {
        **client_properties(bootstrap),
        "group.id": "headworks-lag",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        # One batch holds the time; more would be read in vain.
        "fetch.message.max.bytes": 1024,
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 64,
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 5,  # a full queue empties at once
        "log_level": 2,
    }
