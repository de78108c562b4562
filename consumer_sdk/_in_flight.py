"""The messages that handlers work on beside each other, by partition, in their order.

Rules:

- A message may be committed when it is finished, and so is every message before it in its
  partition.
- When a partition is lost, its messages that no handler has begun are never handled here. Those
  that a handler works on get a moment. Afterwards their new owner repeats them.
- A finished message keeps its offset alone, however long one before it takes.
- Any thread may call any method.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

import confluent_kafka

from consumer_sdk._message import Partition

_Place = tuple[str, int]  # a Partition, or equal to one: a plain tuple is made faster
HANDED_BACK_SECONDS = 1.0  # how long a revocation waits for messages that are being handled


@dataclass(slots=True, eq=False)
class _Flight:
    raw: confluent_kafka.Message | None  # until it is finished
    place: _Place
    offset: int
    leader_epoch: int  # or -1
    is_begun: bool = False
    is_finished: bool = False


class InFlight:
    """Messages that were handed over.

    `store` is called with the partition, offset, and leader epoch of each that may be committed.
    """

    def __init__(self, store: Callable[[Partition, int, int], None]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_awaited = False  # whether `release` waits for a message
        self._flights: dict[int, _Flight] = {}  # those of partitions that are ours, by id of `raw`
        self._order: dict[_Place, deque[_Flight]] = {}

    def add(self, raw: confluent_kafka.Message) -> None:
        """Take a message, which is behind all others of its partition."""
        place = raw.topic() or "", raw.partition() or 0
        flight = _Flight(raw, place, raw.offset() or 0, epoch_of(raw))
        with self._lock:
            self._flights[id(raw)] = flight
            order = self._order.get(place)
            if order is None:
                order = self._order[place] = deque()
            order.append(flight)

    def begin(self, raw: confluent_kafka.Message) -> bool:
        """Return whether a handler may begin a message: whether its partition is still ours."""
        with self._lock:
            flight = self._flights.get(id(raw))
            if flight is None:
                return False
            flight.is_begun = True
            return True

    def finish(self, raw: confluent_kafka.Message) -> None:
        """Store the last message before the first unfinished one, if there is a new one."""
        with self._lock:
            flight = self._flights.pop(id(raw), None)
            if flight is None:
                return
            flight.is_finished, flight.raw = True, None
            place = flight.place
            order, last = self._order[place], None
            while order and order[0].is_finished:
                last = order.popleft()
            if last is not None:
                if not order:
                    del self._order[place]
                self._store(Partition(*place), last.offset, last.leader_epoch)
            if self._is_awaited:
                self._changed.notify_all()

    def has(self, partition: Partition) -> bool:
        """Return whether a message of a partition is unfinished."""
        with self._lock:
            return partition in self._order

    def window(self, partition: _Place) -> int:
        """Return how many messages of a partition there are from the first unfinished one on."""
        return len(self._order.get(partition, ()))

    def release(self, partitions: Collection[Partition], seconds: float) -> None:
        """Forget partitions, after the messages that handlers work on, or `seconds`."""
        with self._changed:
            for flight in self._of(partitions):
                if not flight.is_begun:
                    self._flights.pop(id(flight.raw), None)
            self._is_awaited = True
            self._changed.wait_for(lambda: not self._is_busy(partitions), seconds)
            self._is_awaited = False
            for flight in self._of(partitions):
                self._flights.pop(id(flight.raw), None)
            for partition in partitions:
                self._order.pop(partition, None)

    def forget_from(self, partition: Partition, offset: int) -> None:
        """Forget the messages of a partition from an offset on: they are fetched again."""
        with self._lock:
            order = self._order.get(partition, deque())
            while order and order[-1].offset >= offset:
                self._flights.pop(id(order.pop().raw), None)
            if not order:
                self._order.pop(partition, None)

    def _of(self, partitions: Collection[Partition]) -> list[_Flight]:
        return [each for partition in partitions for each in self._order.get(partition, ())]

    def _is_busy(self, partitions: Collection[Partition]) -> bool:
        return any(each.is_begun and not each.is_finished for each in self._of(partitions))


def epoch_of(raw: confluent_kafka.Message) -> int:
    """Return the leader epoch of a message; -1 if the broker named none."""
    epoch = raw.leader_epoch()
    return -1 if epoch is None else epoch
