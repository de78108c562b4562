"""The first and next offsets of all partitions of topics, from the broker.

Rules: three requests for any number of topics. A partition without a leader has no bounds, and its
topic is missing in the answer: bounds are never guessed.
"""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headworks._audit.reader import broker_unreachable
from headworks._kafka.client_properties import client_properties
from headworks._kafka.log_offsets import EARLIEST, LATEST, list_several

_TIMEOUT_SECONDS = 10.0


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
        bounds = [EARLIEST, LATEST]
        several = list_several(self._admin, places, bounds, timeout=_TIMEOUT_SECONDS)
        starts, ends = (listed.offsets for listed in several)
        known = starts.keys() & ends.keys()
        unknown = {topic for topic, partition in places if (topic, partition) not in known}
        answer: dict[str, dict[int, tuple[int, int]]] = {t: {} for t in topics if t not in unknown}
        for topic, partition in places:
            if topic in answer:
                place = topic, partition
                answer[topic][partition] = (starts[place], max(starts[place], ends[place]))
        return answer
