"""Who reads what: the range assignment of NetDB'11, Algorithm 1, as a pure function.

Rules:

- Every member computes the whole from the same registry and takes its own part, so the result
  depends on the sets alone: not on who asks, nor on the order in which things were read.
- The unit that shares is the stream: a member with three streams counts three times.
- Partitions are sorted by broker, then by number, so that a stream's range touches few brokers.
  Streams are sorted by member, then by number; the first ones take what is left over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["BrokerPartition", "StreamId", "assign", "assignment_of", "ranges"]


class BrokerPartition(NamedTuple):
    """A partition of some topic, with the broker that has it."""

    broker: int
    partition: int


class StreamId(NamedTuple):
    """One of the streams of a member."""

    member: str
    number: int


def ranges(
    partitions: Iterable[BrokerPartition], streams: Iterable[StreamId]
) -> dict[StreamId, Sequence[BrokerPartition]]:
    """Deal sorted partitions to sorted streams in ranges; the first get what is left over."""
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
    """For each topic, which stream reads which partitions.

    `partitions` are those there are, by topic; `members` say how many streams each has for which
    topic. A topic that nobody has streams for is left out.
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
    """What `member` reads: the (topic, partition)s of its part, and which stream reads each."""
    return {
        (topic, partition): stream.number
        for topic, assigned in assign(partitions, members).items()
        for stream, own in assigned.items()
        if stream.member == member
        for partition in own
    }
