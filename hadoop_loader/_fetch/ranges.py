"""The offset ranges that a load reads, and their assignment to tasks. Pure.

Rules:

- A range is [start, end) of one partition: from the last commit's offset to the log end offset when
  the load began. Every offset of it is assigned to exactly one task.
- Ranges are packed into a fixed number of tasks, worst fit decreasing: the heaviest piece goes to
  the lightest task.
- A topic up to an eighth of a task is one piece, so that it is opened, and its files are written,
  once. In a heavier topic each range is a piece, and ranges above half a task are split.
- A piece weighs its bytes, measured in the topic's last load, plus the cost of opening a topic:
  otherwise many small topics would weigh nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from headworks.errors import HeadworksError, UnreachableError

OPEN_COST_BYTES = 500_000.0
DEFAULT_RECORD_BYTES = 200.0
MIN_SPLIT_OFFSETS = 5_000
# Shares of a task's weight: a topic that is not split, and the largest piece of one that is.
_WHOLE_TOPIC_SHARE, _MAX_PIECE_SHARE = 1 / 8, 1 / 2


@dataclass(frozen=True, slots=True, order=True)
class FetchRange:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets in the range; some may hold no message."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The log start offset of a partition, and the offset that its next message gets."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """Offsets [start, end) of a partition that the broker dropped before they were loaded."""

    partition: int
    start: int
    end: int


class OffsetGapError(HeadworksError):
    """A topic whose log no longer continues where the last load ended."""


def new_ranges(
    topic: str,
    committed: Mapping[int, int],
    marks: Mapping[int, Watermarks],
    *,
    skip_lost: bool,
) -> tuple[list[FetchRange], list[OffsetGap]]:
    """Return the new ranges of a topic, and its lost offsets.

    Raises OffsetGapError if messages were lost (unless `skip_lost`), or if the log ends before the
    offset that was loaded.
    """
    ranges, gaps = [], []
    for partition, mark in sorted(marks.items()):
        start = committed.get(partition, mark.low)
        if start > mark.high:
            raise OffsetGapError(
                f"{topic}[{partition}] ends at offset {mark.high}, but it was loaded up to {start}",
                fix="the topic was deleted and created again, or the broker lost its data: "
                "give the new topic another name",
            )
        if start < mark.low:
            if not skip_lost:
                raise retention_gap_error(topic, partition, start, mark.low)
            gaps.append(OffsetGap(partition, start, mark.low))
            start = mark.low
        if start < mark.high:
            ranges.append(FetchRange(topic, partition, start, mark.high))
    return ranges, gaps


def retention_gap_error(
    topic: str, partition: int, start: int, low: int | None = None
) -> OffsetGapError:
    """Return the error for messages that retention removed before they were loaded."""
    what = (
        f"offset {start}, and perhaps more, was"
        if low is None
        else f"offsets {start} to {low - 1} were"
    )
    return OffsetGapError(
        f"{topic}[{partition}] {what} dropped by the broker's retention before they were loaded",
        fix="load with --skip-lost to go on behind them: they are counted as lost in the audit; "
        "or bring the messages back (a mirror, a backup), then load again",
    )


def no_leader_error(topic: str, partitions: Sequence[int]) -> UnreachableError:
    """Return the error for partitions of a topic for which no leader answers."""
    which = ", ".join(map(str, partitions))
    return UnreachableError(
        f"no leader answers for partition{'s' * (len(partitions) > 1)} {which} of {topic}",
        fix=f"start the brokers that hold them again (`headworks topic describe {topic}`): offsets "
        "stand where they were, and the next try reads on from there",
    )


def assign_to_tasks(
    ranges: Iterable[FetchRange], bins: int, record_bytes: Mapping[str, float] | None = None
) -> list[tuple[FetchRange, ...]]:
    """Distribute ranges over at most `bins` tasks, the heaviest first; no task is empty."""
    sizes = record_bytes or {}

    def weight(piece: Sequence[FetchRange]) -> float:
        return OPEN_COST_BYTES + estimated_bytes(piece, sizes)

    topics = _by_topic(ranges)
    share = sum(map(weight, topics)) / bins
    pieces: list[tuple[FetchRange, ...]] = []
    for topic in topics:
        if weight(topic) <= share * _WHOLE_TOPIC_SHARE:
            pieces.append(topic)
        else:
            size = sizes.get(topic[0].topic, DEFAULT_RECORD_BYTES)
            pieces += [
                (piece,) for r in topic for piece in _split(r, share * _MAX_PIECE_SHARE, size)
            ]
    heap: list[tuple[float, int]] = [(0.0, i) for i in range(bins)]
    packed: list[list[FetchRange]] = [[] for _ in range(bins)]
    for piece in sorted(pieces, key=lambda piece: (-weight(piece), piece)):
        load, at = heapq.heappop(heap)
        packed[at] += piece
        heapq.heappush(heap, (load + weight(piece), at))
    loads = {at: load for load, at in heap}
    order = sorted((i for i in range(bins) if packed[i]), key=lambda i: -loads[i])
    return [_merge_adjacent(packed[i]) for i in order]


def estimated_bytes(ranges: Iterable[FetchRange], record_bytes: Mapping[str, float]) -> float:
    """Return the estimated bytes of messages in the ranges, by the mean size of each topic."""
    return sum(r.size * record_bytes.get(r.topic, DEFAULT_RECORD_BYTES) for r in ranges)


def consumer_assignments(ranges: Iterable[FetchRange]) -> list[list[FetchRange]]:
    """Return ranges in groups without a repeated partition, as a consumer can be assigned them."""
    groups: list[list[FetchRange]] = []
    seen: dict[tuple[str, int], int] = {}
    for r in sorted(ranges):
        at = seen.get((r.topic, r.partition), 0)
        seen[r.topic, r.partition] = at + 1
        if at == len(groups):
            groups.append([])
        groups[at].append(r)
    return groups


def _by_topic(ranges: Iterable[FetchRange]) -> list[tuple[FetchRange, ...]]:
    return [tuple(found) for _, found in groupby(sorted(ranges), key=lambda r: r.topic)]


def _split(r: FetchRange, limit: float, record_bytes: float) -> list[FetchRange]:
    step = max(MIN_SPLIT_OFFSETS, int(limit / record_bytes))
    count = -(-r.size // step)
    edges = [r.start + r.size * i // count for i in range(count + 1)]
    return [FetchRange(r.topic, r.partition, a, b) for a, b in pairwise(edges) if a < b]


def _merge_adjacent(ranges: list[FetchRange]) -> tuple[FetchRange, ...]:
    """Return a task's ranges in order, adjacent ones merged."""
    joined: list[FetchRange] = []
    for r in sorted(ranges):
        last = joined[-1] if joined else None
        if last and (last.topic, last.partition, last.end) == (r.topic, r.partition, r.start):
            joined[-1] = FetchRange(r.topic, r.partition, last.start, r.end)
        else:
            joined.append(r)
    return tuple(joined)
