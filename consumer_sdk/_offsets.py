"""Targets to seek to: an end of the log, a time, or an offset of each partition.

Rules:

- A time means the first message at or after it, or the end if there is none.
- The broker is asked for all partitions at once. It answers in order, so a request may wait for the
  fetch before it (`fetch.wait.max.ms`, half a second). One request for each partition would wait
  each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from consumer_sdk._message import Partition
from headworks.errors import UnreachableError, UsageError

SeekTarget = Literal["earliest", "latest"] | datetime | Mapping[Partition, int]
_TIMEOUT_SECONDS = 15.0
_NO_OFFSET = -1
RESET_OFFSETS = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("latest", "largest", "end"), OFFSET_END),
}
"""The end of a log that each value of `auto.offset.reset` means."""


def offsets_of(
    client: confluent_kafka.Consumer, partitions: Sequence[Partition], target: SeekTarget
) -> dict[Partition, int]:
    """Return the offset that `target` means in each partition, or in those that it names.

    Raises UsageError for a naive datetime or a partition that is not among `partitions`, and
    UnreachableError if the broker does not answer.
    """
    if isinstance(target, Mapping):
        check_assigned(target, partitions)
        return {Partition(*partition): offset for partition, offset in target.items()}
    if isinstance(target, datetime):
        time_ms = max(0, milliseconds_of(target))  # -1 would be the end
    else:
        time_ms = RESET_OFFSETS[target]
    try:
        offsets = _first_since(client, partitions, time_ms)
        past_end = [partition for partition, offset in offsets.items() if offset == _NO_OFFSET]
        return offsets | _first_since(client, past_end, OFFSET_END)
    except KafkaException as error:
        raise UnreachableError(f"the broker does not say where {target} is: {error}") from None


def check_assigned(named: Iterable[Partition], partitions: Sequence[Partition]) -> None:
    """Raise UsageError for a named partition that is not among `partitions`."""
    for partition in named:
        if partition not in partitions:
            raise UsageError(
                f"{partition[0]} partition {partition[1]} is not assigned to this member",
                fix="name partitions that it reads (`assignment`)",
            )


def milliseconds_of(instant: datetime) -> int:
    """Return a time in milliseconds since 1970 UTC; UsageError if it is naive."""
    if instant.tzinfo is None:
        raise UsageError(
            f"{instant.isoformat()} has no time zone", fix="give an aware datetime, e.g. in UTC"
        )
    return int(instant.timestamp() * 1000)


def uncommitted(
    client: confluent_kafka.Consumer, partitions: Sequence[Partition]
) -> list[Partition]:
    """Return the partitions in which the group has no committed offset.

    Raises KafkaException if the broker does not say so of each partition.
    """
    found = client.committed([_kafka_partition(p) for p in partitions], _TIMEOUT_SECONDS)
    for at in found:
        if at.error is not None:
            raise KafkaException(at.error)
    return [Partition(at.topic, at.partition) for at in found if at.offset < 0]


def note_beginning(
    client: confluent_kafka.Consumer, starts: Mapping[Partition, int], *, commit: bool
) -> None:
    """Store where a group begins, and `commit` it, before it has read anything.

    A group that begins at the end, and whose member ends before its first message, would otherwise
    begin at a later end, and skip what came in between.
    """
    places = [TopicPartition(*p, offset) for p, offset in starts.items() if offset >= 0]
    if not places:
        return
    with suppress(KafkaException):  # a rebalance has revoked one already; the group asks again
        client.store_offsets(offsets=places)
        if commit:
            client.commit(offsets=places, asynchronous=True)


def _first_since(
    client: confluent_kafka.Consumer, partitions: Sequence[Partition], time_ms: int
) -> dict[Partition, int]:
    """Return the offset of each partition's first message at or after a time, or `_NO_OFFSET`.

    OFFSET_BEGINNING and OFFSET_END are times as well: the protocol's ListOffsets has them.
    """
    if not partitions:
        return {}
    asked = [TopicPartition(p.topic, p.partition, time_ms) for p in partitions]
    found = {}
    for at in client.offsets_for_times(asked, _TIMEOUT_SECONDS):
        if at.error is not None:
            raise KafkaException(at.error)
        found[Partition(at.topic, at.partition)] = at.offset
    return found


def _kafka_partition(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
