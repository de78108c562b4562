"""The ledger: what the broker acknowledged and showed, written down by its clients alone.

A message's value names its producer, its partition and its number; numbers count up from 0 per
producer and partition. Afterwards everything is read once more, by a client that took no part, and
the ledger is held against it.

Rules that are judged:

- what was acknowledged is there (`kept` producers: acks=all);
- per producer and partition the numbers stand in order, none missing up to the last acknowledged;
- an idempotent producer's number stands there once;
- what a consumer was shown is still there, at the same offset;
- an offset that was committed is never fetched as a smaller one.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

_FILLER = b"." * 60


class Found(NamedTuple):
    """A message as the last reader found it."""

    partition: int
    offset: int
    value: bytes


def value_of(producer: str, partition: int, number: int) -> bytes:
    """The value that says which message it is."""
    return b"%s %d %d %s" % (producer.encode(), partition, number, _FILLER[: number % 60])


def read_value(value: bytes) -> tuple[str, int, int]:
    """Producer, partition and number of a message."""
    producer, partition, number, _ = value.split(b" ", 3)
    return producer.decode(), int(partition), int(number)


class Ledger:
    """Notes from several threads. `kept` producers use acks=all and are idempotent."""

    def __init__(self, kept: Iterable[str]) -> None:
        self.kept = frozenset(kept)
        self.failures: list[str] = []
        self.acknowledged: Counter[str] = Counter()
        self._acks: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._shown: dict[tuple[int, int], int] = {}
        self._committed: dict[int, int] = {}
        self._lock = threading.Lock()

    def fail(self, what: str) -> None:
        """Something that must not be has been seen."""
        self.failures.append(what)

    def acknowledge(self, producer: str, partition: int, number: int) -> None:
        """The broker said that it has this message."""
        with self._lock:
            self._acks[producer, partition].add(number)
            self.acknowledged[producer] += 1

    def show(self, partition: int, offset: int, value: bytes) -> None:
        """A consumer was given this message."""
        with self._lock:
            before = self._shown.setdefault((partition, offset), hash(value))
        if before != hash(value):
            self.fail(f"partition {partition} showed two messages at offset {offset}")

    @property
    def shown(self) -> int:
        """How many messages consumers were given."""
        return len(self._shown)

    def commit(self, partition: int, offset: int) -> None:
        """The broker said that it has stored this position."""
        with self._lock:
            self._committed[partition] = max(offset, self._committed.get(partition, 0))

    def committed(self) -> dict[int, int]:
        """The positions that the broker has acknowledged so far."""
        with self._lock:
            return dict(self._committed)

    def judge(self, messages: Iterable[Found]) -> list[str]:
        """Everything that is wrong with what was found, in offset order per partition."""
        wrong = list(self.failures)
        numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
        left = dict(self._shown)
        for message in messages:
            producer, partition, number = read_value(message.value)
            if partition != message.partition:
                wrong.append(f"{producer} {number} is in partition {message.partition}")
            numbers[producer, partition].append(number)
            shown = left.pop((message.partition, message.offset), None)
            if shown is not None and shown != hash(message.value):
                wrong.append(f"{message.partition} at {message.offset}: was shown otherwise")
        wrong += [f"{p} at {o}: was shown and is gone" for p, o in sorted(left)[:5]]
        for (producer, partition), acknowledged in sorted(self._acks.items()):
            if producer in self.kept:
                where = f"{producer}, partition {partition}"
                wrong += _judge_kept(where, acknowledged, numbers[producer, partition])
        return wrong


def _judge_kept(where: str, acknowledged: set[int], found: list[int]) -> list[str]:
    wrong = []
    lost = acknowledged.difference(found)
    if lost:
        wrong.append(f"{where}: {len(lost)} acknowledged are lost, the first is {min(lost)}")
    if len(set(found)) < len(found):
        twice = [number for number, times in Counter(found).items() if times > 1]
        wrong.append(f"{where}: {len(twice)} are there twice, the first is {min(twice)}")
    unordered = [b for a, b in pairwise(found) if b < a]
    if unordered:
        wrong.append(f"{where}: {unordered[0]} is out of order")
    if not unordered and found and found != list(range(found[-1] + 1)):
        wrong.append(f"{where}: numbers are missing before {found[-1]}")
    return wrong
