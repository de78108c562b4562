"""The broker's topics: partitions, messages, and messages per second.

Rules: two requests cover all topics together (metadata and offsets), never one per topic. The rate
is the growth of the end offsets between the last samples, and the last message is when they last
grew, so neither needs a request.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headworks._kafka.client_properties import client_properties
from headworks._kafka.log_offsets import EARLIEST, LATEST, Place, list_several
from headworks.errors import UnreachableError

_TIMEOUT_SECONDS = 10.0
_MAX_SAMPLES = 30


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic with its `messages` and the sum of its end offsets; `rates` are oldest first.

    `grown_ms` is when the log was last seen to grow, in ms since 1970, or None if it never was.
    """

    topic: str
    partitions: int
    messages: int
    end: int
    rate: float | None
    rates: tuple[float, ...]
    grown_ms: int | None = None

    @property
    def internal(self) -> bool:
        """Return whether Headworks or the broker created the topic for itself."""
        return self.topic.startswith(("headworks.", "__"))


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """All topics by name, in order; `watched_since_ms` is the time of the first reading."""

    rows: Mapping[str, TopicRow]
    watched_since_ms: int = 0


class GrowthTimes:
    """When each log was last seen to grow, since the first reading at `since_ms`."""

    def __init__(self) -> None:
        self.since_ms: int | None = None
        self.times_ms: Mapping[str, int] = {}
        self._ends: Mapping[str, int] = {}

    def note(self, ends: Mapping[str, int], now_ms: int) -> None:
        """Note the end offsets of a reading. Topics that are gone are forgotten."""
        if self.since_ms is None:
            self.since_ms = now_ms
        else:
            grown = {name: now_ms for name, end in ends.items() if end > self._ends.get(name, 0)}
            kept = {name: at for name, at in self.times_ms.items() if name in ends}
            self.times_ms = kept | grown
        self._ends = ends


def broker_unreachable(bootstrap: str, error: KafkaException) -> UnreachableError:
    """Return the error for a broker that does not answer."""
    return UnreachableError(
        f"no broker answers at {bootstrap}: {error.args[0].str()}",
        fix="start one with `headworks up`, or check the setting `bootstrap`",
    )


class TopicReader:
    """Reads all topics of the broker at `bootstrap`."""

    def __init__(
        self,
        bootstrap: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._bootstrap = bootstrap
        self._clock = clock
        self._now = now
        self._growth = GrowthTimes()
        self._admin = AdminClient({**client_properties(bootstrap), "log_level": 0})
        self._ends: deque[tuple[float, dict[str, int]]] = deque(maxlen=_MAX_SAMPLES + 1)

    def __call__(self) -> TopicsSnapshot:
        """Read all topics. Raises UnreachableError if no broker answers."""
        try:
            found = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
            partitions = [
                (name, number) for name, topic in found.items() for number in topic.partitions
            ]
            firsts, ends = self._bounds(partitions)
        except KafkaException as error:
            raise broker_unreachable(self._bootstrap, error) from None
        self._growth.note(ends, round(self._now()) * 1000)
        self._ends.append((self._clock(), ends))
        return TopicsSnapshot(
            {
                name: self._row(name, len(found[name].partitions), firsts, ends)
                for name in sorted(found)
            },
            self._growth.since_ms or 0,
        )

    def _bounds(self, partitions: Collection[Place]) -> list[dict[str, int]]:
        """Return the sums of the first offsets and of the ends, per topic.

        A partition without a leader counts as 0.
        """
        bounds = [EARLIEST, LATEST]
        several = list_several(self._admin, partitions, bounds, timeout=_TIMEOUT_SECONDS)
        for error in (error for listed in several for error in listed.errors.values()):
            if error.args[0].retriable():
                raise error
        return [_sums(partitions, listed.offsets) for listed in several]

    def _row(
        self, name: str, partitions: int, firsts: Mapping[str, int], ends: Mapping[str, int]
    ) -> TopicRow:
        end = ends.get(name, 0)
        rates = tuple(self._rates(name))
        rate = rates[-1] if rates else None
        messages = max(0, end - firsts.get(name, 0))
        return TopicRow(
            name, partitions, messages, end, rate, rates, self._growth.times_ms.get(name)
        )

    def _rates(self, name: str) -> Iterator[float]:
        samples = list(self._ends)
        for (before, old), (after, new) in pairwise(samples):
            if name in old and name in new and after > before:
                yield max(0.0, (new[name] - old[name]) / (after - before))


def _sums(partitions: Collection[Place], offsets: Mapping[Place, int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for topic, partition in partitions:
        sums[topic] = sums.get(topic, 0) + max(0, offsets.get((topic, partition), 0))
    return sums
