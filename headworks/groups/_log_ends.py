"""What groups are measured against: the ends of logs, offsets by time, times by offset.

Rules:

- Ends and offsets by time are one call for all partitions.
- A time by offset takes a read. It is remembered, because the message at an offset does not
  change; the memory is bounded. One read serves every partition, and offsets near each other.
- What cannot be read before the deadline is None, never a guess.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from headworks._kafka.client_properties import broker_client
from headworks.groups._classic import ClassicGroups
from headworks.groups._model import Place, Spot

__all__ = ["Ends", "LogEnds", "Timestamps"]

_TIMEOUT = 15.0
_REMEMBERED = 100_000
_TURN = 0.1
_AT_ONCE = 500
_NEAR = 500
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Ends(NamedTuple):
    """First offset of a log, and the one after its last message."""

    start: int
    end: int


class LogEnds:
    """The ends of partitions' logs."""

    def __init__(self, broker: ClassicGroups) -> None:
        self._broker = broker

    def of(self, places: Collection[Place]) -> dict[Place, Ends]:
        """First and next offset; what is not there, or has no leader now, is left out."""
        starts = self._ask(places, _EARLIEST)
        ends = self._ask(places, _LATEST)
        return {place: Ends(starts[place], ends[place]) for place in starts.keys() & ends.keys()}

    def at(self, places: Collection[Place], timestamp: int) -> dict[Place, int]:
        """The offset of the first message at or after a time in ms, where there is one."""
        found = self._ask(places, OffsetSpec.for_timestamp(timestamp))
        return {place: offset for place, offset in found.items() if offset >= 0}

    def _ask(self, places: Collection[Place], spec: OffsetSpec) -> dict[Place, int]:
        if not places:
            return {}
        asked = {TopicPartition(*place): spec for place in places}
        futures = self._broker.admin.list_offsets(asked, request_timeout=_TIMEOUT)
        found = self._broker.ask("tell the ends of the logs", futures)
        return {Place(p.topic, p.partition): told.offset for p, told in found.items()}


class Timestamps:
    """The times of messages by their offsets; not shared between threads."""

    def __init__(self, bootstrap: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bootstrap = bootstrap
        self._clock = clock
        self._known: OrderedDict[Spot, int] = OrderedDict()
        self._reader: confluent_kafka.Consumer | None = None

    def of(self, spots: Iterable[Spot], timeout: float) -> dict[Spot, int]:
        """The timestamps (ms) of the first messages at or after `spots`, as far as time allows."""
        deadline = self._clock() + timeout
        wanted = set(spots)
        missing: dict[Place, list[Spot]] = {}
        for spot in sorted(wanted - self._known.keys()):
            missing.setdefault(Place(spot.topic, spot.partition), []).append(spot)
        while missing and self._clock() < deadline:
            self._read(missing, deadline)
            missing = {place: left for place, left in missing.items() if left}
        found = {spot: self._known[spot] for spot in wanted & self._known.keys()}
        for spot in found:
            self._known.move_to_end(spot)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found

    def close(self) -> None:
        """Let go of the connections."""
        if self._reader is not None:
            self._reader.close()

    def _read(self, missing: Mapping[Place, list[Spot]], deadline: float) -> None:
        """Read on from the first spot of each partition, past those that lie near behind it."""
        reader = self._reader = self._reader or confluent_kafka.Consumer(_reading(self._bootstrap))
        reading = set(missing)
        reader.assign([TopicPartition(*left[0]) for left in missing.values()])
        while reading and self._clock() < deadline:
            done = []
            for message in reader.consume(_AT_ONCE, _TURN):
                place = Place(message.topic() or "", message.partition() or 0)
                if place in reading and self._ends_a_run(message, missing[place]):
                    reading.discard(place)
                    done.append(TopicPartition(*place))
            if done and reading:
                reader.incremental_unassign(done)
        reader.unassign()

    def _ends_a_run(self, message: confluent_kafka.Message, left: list[Spot]) -> bool:
        """Learn from a message; whether the next spot is nowhere near, or cannot be read."""
        if message.error() is not None:
            left.pop(0)
            return True
        offset = message.offset() or 0
        while left and left[0].offset <= offset:
            self._known[left.pop(0)] = message.timestamp()[1]
        return not left or left[0].offset > offset + _NEAR


def _reading(bootstrap: str) -> dict[str, Any]:
    return {
        **broker_client(bootstrap),
        "group.id": "headworks-lag",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        # One batch tells the time; more would be read and thrown away.
        "fetch.message.max.bytes": 1024,
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 64,
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 5,  # a full queue is emptied at once
        "log_level": 2,
    }
