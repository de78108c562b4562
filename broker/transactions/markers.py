"""Write the markers that end a transaction, in the partitions that this broker serves.

Rules:

- A partition in which no transaction of the producer is open needs no marker. So the markers may be
  written again after a crash.
- A topic that was deleted, or made again under its name, holds no records of the transaction.
- A partition that is not served now is waited for: its marker must not be left out.
"""

from __future__ import annotations

import asyncio
from functools import partial

from headworks._broker.coordination.transaction_store import (
    IDLE,
    PendingOffset,
    ProducerTransaction,
    TransactionPartition,
    TransactionState,
)
from headworks._broker.topics import (
    HostedPartition,
    HostedTopic,
    HostedTopics,
    StorageFailureError,
)
from headworks._kafka.error_codes import ErrorCode, refused
from headworks._kafka.records.control import encode_marker
from headworks.errors import RefusedError

_COORDINATOR_EPOCH = 0  # of every marker: the coordinator never moves


def lists(hosted: HostedTopics, known: ProducerTransaction, partition: HostedPartition) -> bool:
    """Return whether a transaction that has not completed has this partition."""
    if known.state in IDLE:
        return False
    topic = hosted.topics.get(partition.topic)
    if topic is None:
        return False
    place = TransactionPartition(partition.topic, partition.index, topic.topic_id)
    return place in known.partitions


def is_current(hosted: HostedTopics, one: PendingOffset) -> bool:
    """Return whether the topic of an offset exists, and was not made again."""
    topic = hosted.topics.get(one.topic)
    return topic is not None and one.committed.topic_id in (None, topic.topic_id)


async def end_everywhere(hosted: HostedTopics, prepared: ProducerTransaction, now_ms: int) -> None:
    """Write the marker of a prepared transaction to all its partitions, and wait for the disk.

    Raises RefusedError if a partition is not served or cannot be written.
    """
    written: list[HostedPartition] = []
    failure: RefusedError | None = None
    for one in sorted(prepared.partitions):
        topic = hosted.topics.get(one.topic)
        if topic is None or topic.topic_id != one.topic_id:
            continue
        try:
            written.append(_end(topic, one.partition, prepared, now_ms))
        except RefusedError as error:  # the other partitions get theirs
            failure = error
    for reason in await asyncio.gather(*map(_flushed, written)):
        if reason is not None:
            raise StorageFailureError(reason)
    if failure is not None:
        raise failure


def _end(
    topic: HostedTopic, index: int, prepared: ProducerTransaction, now_ms: int
) -> HostedPartition:
    """Write the marker to one partition, and request its flush."""
    partition = topic.partitions.get(index)
    if partition is None:
        raise refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} is not served now")
    if prepared.producer_id in partition.log.producers.transactions.open:
        commit = prepared.state is TransactionState.PREPARE_COMMIT
        write_marker(partition, prepared.producer_id, prepared.epoch, now_ms, commit=commit)
    partition.flush()
    return partition


def write_marker(
    partition: HostedPartition, producer_id: int, epoch: int, now_ms: int, *, commit: bool
) -> None:
    """Write one marker. Raises StorageFailureError."""
    partition.append_marker(
        encode_marker(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=_COORDINATOR_EPOCH,
            timestamp=now_ms,
        )
    )


async def _flushed(partition: HostedPartition) -> str | None:
    """Wait until all that is written is on disk; return the error if it cannot be."""
    done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    partition.when_flushed(partition.log.log_end_offset, partial(_settle, done))
    return await done


def _settle(done: asyncio.Future[str | None], error: str | None) -> None:
    if not done.done():
        done.set_result(error)
