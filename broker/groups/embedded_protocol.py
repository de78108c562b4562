"""The bytes that consumers put into JoinGroup and SyncGroup: Kafka's ConsumerProtocol.

A subscription is `version, [topic], user data`, and from version 1 on the partitions that the
consumer owns. An assignment is `version, [topic, [partition]], user data`.

Rule: the bytes come from strangers. ValueError is raised for those that do not parse.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

NamedPartition = tuple[str, int]
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_NO_USER_DATA = -1


class Subscription(NamedTuple):
    """A consumer's subscription: topics, and the partitions that it owns."""

    topics: frozenset[str]
    owned: frozenset[NamedPartition]


def subscribed_names(metadata: bytes) -> frozenset[str]:
    """Return the topics of a subscription, whatever follows them."""
    return frozenset(_Reader(metadata).names())


def read_subscription(metadata: bytes) -> Subscription:
    """Read a whole subscription."""
    reader = _Reader(metadata)
    topics = frozenset(reader.names())
    reader.skip_bytes()
    owned = reader.partitions() if reader.version >= 1 else ()
    return Subscription(topics, frozenset(owned))


def read_assignment(assignment: bytes) -> frozenset[NamedPartition]:
    """Read the partitions of an assignment; an empty one has none."""
    return frozenset(_Reader(assignment).partitions()) if assignment else frozenset()


def write_assignment(partitions: Iterable[NamedPartition]) -> bytes:
    """Return an assignment, of version 0."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    out = [_SHORT.pack(0), _INT.pack(len(by_topic))]
    for topic, indexes in by_topic.items():
        name = topic.encode()
        out += (_SHORT.pack(len(name)), name, _INT.pack(len(indexes)))
        out += map(_INT.pack, indexes)
    out.append(_INT.pack(_NO_USER_DATA))
    return b"".join(out)


class _Reader:
    """Reads fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        (self.version,) = self._take(_SHORT)

    def names(self) -> list[str]:
        (count,) = self._take(_INT)
        return [self._name() for _ in range(self._count(count))]

    def partitions(self) -> list[NamedPartition]:
        found = []
        (topics,) = self._take(_INT)
        for _ in range(self._count(topics)):
            name = self._name()
            (count,) = self._take(_INT)
            found += [(name, self._take(_INT)[0]) for _ in range(self._count(count))]
        return found

    def skip_bytes(self) -> None:
        (size,) = self._take(_INT)
        self._at += max(size, 0)

    def _count(self, count: int) -> int:
        if count > len(self._data):  # each takes a byte at least
            raise ValueError("a count runs over the end")
        return count

    def _name(self) -> str:
        (size,) = self._take(_SHORT)
        name = self._data[self._at : self._at + size]
        if size < 0 or len(name) < size:
            raise ValueError("a name runs over the end")
        self._at += size
        return name.decode()

    def _take(self, field: struct.Struct) -> tuple[int]:
        try:
            (found,) = field.unpack_from(self._data, self._at)
        except struct.error as error:
            raise ValueError(str(error)) from None
        self._at += field.size
        return (found,)
