"""The first and next offsets of all partitions of topics, from the broker.

Rules: three requests for any number of topics. A partition without a leader has no bounds, and its
topic is missing in the answer: bounds are never guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from headworks._audit.reader import broker_unreachable
from headworks._kafka.client_properties import client_properties

_TIMEOUT_SECONDS = 10.0
_MAX_BATCH_PARTITIONS = 2_000
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_Place = tuple[str, int]  # topic and partition


class LogBoundsReader:
    """Asks the broker at `bootstrap` for (log start offset, log end offset) by topic."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin: AdminClient | None = None  # opened at the first question

    def __call__(self, topics: Collection[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the bounds by topic and partition. A missing topic has an empty answer.

        Raises UnreachableError if no broker answers.
        """
        if self._admin is None:
            self._admin = AdminClient({**client_properties(self._bootstrap), "log_level": 0})
        try:
            found = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        except KafkaException as error:
            raise broker_unreachable(self._bootstrap, error) from None
        places = [(t, p) for t in topics if t in found for p in found[t].partitions]
        starts = self._offsets(self._admin, places, _EARLIEST)
        ends = self._offsets(self._admin, places, _LATEST)
        known = starts.keys() & ends.keys()
        unknown = {topic for topic, partition in places if (topic, partition) not in known}
        answer: dict[str, dict[int, tuple[int, int]]] = {t: {} for t in topics if t not in unknown}
        for topic, partition in places:
            if topic in answer:
                place = topic, partition
                answer[topic][partition] = (starts[place], max(starts[place], ends[place]))
        return answer

    def _offsets(
        self, admin: AdminClient, places: list[_Place], spec: OffsetSpec
    ) -> Mapping[_Place, int]:
        offsets: dict[_Place, int] = {}
        for batch in _batches(places):
            asked: Any = {TopicPartition(*place): spec for place in batch}
            futures = admin.list_offsets(asked, request_timeout=_TIMEOUT_SECONDS)
            for place, future in futures.items():
                try:
                    offsets[place.topic, place.partition] = future.result(_TIMEOUT_SECONDS).offset
                except (KafkaException, TimeoutError):
                    continue
        return offsets


def _batches(places: list[_Place]) -> Iterator[list[_Place]]:
    source = iter(places)
    while batch := list(islice(source, _MAX_BATCH_PARTITIONS)):
        yield batch
