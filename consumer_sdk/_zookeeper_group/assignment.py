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

__all__ = ["BrokerPartition", "Stream", "assign", "ranges", "share_of"]


class BrokerPartition(NamedTuple):
    """A partition of some topic, with the broker that has it."""

    broker: int
    partition: int


class Stream(NamedTuple):
    """One of the streams of a member."""

    member: str
    number: int


def ranges(
    partitions: Iterable[BrokerPartition], streams: Iterable[Stream]
) -> dict[Stream, Sequence[BrokerPartition]]:
    """Deal sorted partitions to sorted streams in ranges; the first get what is left over."""
    ordered, takers = sorted(set(partitions)), sorted(set(streams))
    if not takers:
        return {}
    each, left = divmod(len(ordered), len(takers))
    found: dict[Stream, Sequence[BrokerPartition]] = {}
    at = 0
    for index, stream in enumerate(takers):
        end = at + each + (index < left)
        found[stream] = ordered[at:end]
        at = end
    return found


def assign(
    partitions: Mapping[str, Iterable[BrokerPartition]], members: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[Stream, Sequence[BrokerPartition]]]:
    """For each topic, which stream reads which partitions.

    `partitions` are those there are, by topic; `members` say how many streams each has for which
    topic. A topic that nobody has streams for is left out.
    """
    found = {}
    for topic, available in partitions.items():
        streams = [
            Stream(member, number)
            for member, wanted in members.items()
            for number in range(wanted.get(topic, 0))
        ]
        if streams:
            found[topic] = ranges(available, streams)
    return found


def share_of(
    member: str,
    partitions: Mapping[str, Iterable[BrokerPartition]],
    members: Mapping[str, Mapping[str, int]],
) -> dict[tuple[str, BrokerPartition], int]:
    """What `member` reads: the (topic, partition)s of its part, and which stream reads each."""
    return {
        (topic, partition): stream.number
        for topic, dealt in assign(partitions, members).items()
        for stream, part in dealt.items()
        if stream.member == member
        for partition in part
    }
