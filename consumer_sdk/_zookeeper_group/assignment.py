"""The range assignment of NetDB'11, Algorithm 1: which stream reads which partition.

Rules:

- Pure: the result depends on the sets alone. Every member computes the whole assignment from the
  same registrations and takes its own part.
- Partitions are shared among streams, not members: a member with three streams counts three times.
- Partitions are sorted by broker, then by number, so that a stream's range touches few brokers.
  Streams are sorted by member, then by number. The first streams get the remainder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class BrokerPartition(NamedTuple):
    """A partition of some topic, and the broker that stores it."""

    broker: int
    partition: int


class StreamId(NamedTuple):
    """One of the streams of a member."""

    member: str
    number: int


def ranges(
    partitions: Iterable[BrokerPartition], streams: Iterable[StreamId]
) -> dict[StreamId, Sequence[BrokerPartition]]:
    """Assign sorted partitions to sorted streams in ranges; the first get the remainder."""
    ordered, receivers = sorted(set(partitions)), sorted(set(streams))
    if not receivers:
        return {}
    per_stream, remainder = divmod(len(ordered), len(receivers))
    found: dict[StreamId, Sequence[BrokerPartition]] = {}
    at = 0
    for index, stream in enumerate(receivers):
        end = at + per_stream + (index < remainder)
        found[stream] = ordered[at:end]
        at = end
    return found


def assign(
    partitions: Mapping[str, Iterable[BrokerPartition]], members: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[StreamId, Sequence[BrokerPartition]]]:
    """Return the partitions of each stream, by topic.

    `partitions` holds the available ones by topic. `members` holds, for each member, its number of
    streams by topic. A topic without streams is left out.
    """
    found = {}
    for topic, available in partitions.items():
        streams = [
            StreamId(member, number)
            for member, wanted in members.items()
            for number in range(wanted.get(topic, 0))
        ]
        if streams:
            found[topic] = ranges(available, streams)
    return found


def assignment_of(
    member: str,
    partitions: Mapping[str, Iterable[BrokerPartition]],
    members: Mapping[str, Mapping[str, int]],
) -> dict[tuple[str, BrokerPartition], int]:
    """Return the (topic, partition)s of `member`, and the number of the stream for each."""
    return {
        (topic, partition): stream.number
        for topic, assigned in assign(partitions, members).items()
        for stream, own in assigned.items()
        if stream.member == member
        for partition in own
    }
