"""Offsets of many partitions at once, from their leaders: the one ListOffsets of all our clients.

Rules:

- One request for each broker, spec, and 2,000 partitions, for any number of topics.
- A partition without an answer has an error and no offset. librdkafka gives no error for a leader
  that is known and does not answer: that is LEADER_NOT_AVAILABLE here.
- The caller decides which errors matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Place = tuple[str, int]  # topic and partition
_MAX_BATCH_PARTITIONS = 2_000
_SPARE_SECONDS = 5.0  # that librdkafka may need beyond the timeout of a request


class ListedOffsets(NamedTuple):
    """The offsets of partitions, and the errors of those that have none."""

    offsets: dict[Place, int]
    errors: dict[Place, KafkaException]


def at_time(time_ms: int) -> OffsetSpec:
    """Return the question for the first message at or after a time; -1 answers that none is.

    A time before 1970 is asked as 1970: for ListOffsets, -1 is the end, and -2 the beginning.
    """
    spec: OffsetSpec = OffsetSpec.for_timestamp(max(0, time_ms))
    return spec


def list_offsets(
    admin: AdminClient,
    places: Iterable[Place],
    spec: OffsetSpec,
    *,
    timeout: float,
    committed: bool = False,
) -> ListedOffsets:
    """Return one offset of each partition, as `spec` asks. `timeout` is of a request, in seconds.

    With `committed`, the end of a partition is where readers of committed messages stop.
    """
    return list_several(admin, places, [spec], timeout=timeout, committed=committed)[0]


def list_several(
    admin: AdminClient,
    places: Iterable[Place],
    specs: Sequence[OffsetSpec],
    *,
    timeout: float,
    committed: bool = False,
) -> list[ListedOffsets]:
    """Return what `list_offsets` returns for each of `specs`, which are asked at the same time.

    So an end may be older than what retention has removed since.
    """
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    several = [ListedOffsets({}, {}) for _ in specs]
    for batch in _batches(places):
        asked = [
            admin.list_offsets(
                {TopicPartition(*place): spec for place in batch},
                isolation_level=level,
                request_timeout=timeout,
            )
            for spec in specs
        ]
        for listed, futures in zip(several, asked, strict=True):
            for at, future in futures.items():
                try:
                    offset = _offset(future, timeout + _SPARE_SECONDS)
                except KafkaException as error:
                    listed.errors[at.topic, at.partition] = error
                else:
                    listed.offsets[at.topic, at.partition] = offset
    return several


def _offset(future: Future[Any], timeout: float) -> int:
    try:
        offset: int = future.result(timeout).offset
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True)) from None
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return offset


def _batches(places: Iterable[Place]) -> Iterator[list[Place]]:
    source = iter(places)
    while batch := list(islice(source, _MAX_BATCH_PARTITIONS)):
        yield batch
