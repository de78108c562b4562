"""The letters of a dead-letter topic, from its first offset or from a redrive's last commit.

Rules: the reader joins no group, so a successor of a killed one waits for nobody. It reads up to
the ends of the logs when it began. Only `commit` changes anything: the offsets of its group.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer_sdk._message import Partition
from headworks._kafka.client_properties import READ_AHEAD
from headworks._kafka.clients import KafkaConsumer
from headworks.errors import CorruptError, UnreachableError, UsageError

_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.5
_SILENT_SECONDS = 30.0
_BATCH_MESSAGES = 500
Bounds = dict[Partition, tuple[int, int]]


class LetterReader:
    """Reads `topic`; `group` holds the offsets that a redrive has committed."""

    def __init__(self, client: Mapping[str, Any], topic: str, group: str) -> None:
        self._topic = topic
        self._consumer = KafkaConsumer(
            {
                **READ_AHEAD,
                **client,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )

    def bounds(self) -> Bounds:
        """Return the first and the next offset of each partition.

        Raises UsageError if the topic does not exist, and UnreachableError.
        """
        try:
            found = self._consumer.list_topics(timeout=_TIMEOUT_SECONDS).topics
            if self._topic not in found:
                raise UsageError(
                    f"there is no topic {self._topic!r}, so nothing was written there",
                    fix="see `headworks dead-letter list`",
                )
            return {
                Partition(self._topic, number): self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, number), _TIMEOUT_SECONDS
                )
                for number in sorted(found[self._topic].partitions)
            }
        except KafkaException as error:
            raise _unreachable(error) from None

    def uncommitted(self, bounds: Bounds) -> Bounds:
        """Return the part of `bounds` behind the committed offsets."""
        try:
            found = self._consumer.committed(
                [TopicPartition(*place) for place in bounds], _TIMEOUT_SECONDS
            )
        except KafkaException as error:
            raise _unreachable(error) from None
        committed = {Partition(p.topic, p.partition): p.offset for p in found}
        starts = {place: max(first, committed[place]) for place, (first, _) in bounds.items()}
        return {place: (starts[place], end) for place, (_, end) in bounds.items()}

    def batches(self, bounds: Bounds) -> Iterator[list[confluent_kafka.Message]]:
        """Yield the messages within `bounds` in their order per partition, some at a time.

        Raises UnreachableError if the brokers are silent for long.
        """
        ends = {place: end for place, (first, end) in bounds.items() if first < end}
        self._consumer.assign([TopicPartition(*p, bounds[p][0]) for p in ends])
        heard = time.monotonic()
        while ends:
            batch = []
            for message in self._consumer.consume(_BATCH_MESSAGES, _POLL_SECONDS):
                heard = time.monotonic()
                place = Partition(message.topic() or "", message.partition() or 0)
                problem = message.error()
                if problem is not None:
                    _check(problem, place)
                    ends.pop(place, None)
                    continue
                end = ends.get(place, 0)
                if (message.offset() or 0) < end:
                    batch.append(message)
                if (message.offset() or 0) + 1 >= end:
                    ends.pop(place, None)
            if batch:
                yield batch
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENT_SECONDS:
                raise UnreachableError(
                    f"no broker has answered for {_SILENT_SECONDS:.0f} s",
                    fix="start the broker, and run the same command again: it continues",
                )

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit the next offset to read of partitions, and wait for that."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise _unreachable(error) from None

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _check(problem: KafkaError, place: Partition) -> None:
    """Raise the error of an event that is not the end of a partition."""
    if problem.code() == KafkaError._PARTITION_EOF:
        return
    if problem.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
        raise _unreachable(KafkaException(problem))
    raise CorruptError(
        f"{place.topic} partition {place.partition} cannot be read: {problem.str()}",
        fix="see `headworks topic describe`",
    )


def _unreachable(error: KafkaException) -> UnreachableError:
    return UnreachableError(
        f"the broker does not answer: {error.args[0].str()}",
        fix="start it, and run the same command again: it continues",
    )
