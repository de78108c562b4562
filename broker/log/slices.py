"""Find the bytes of a log that answer a fetch, and the aborted transactions in them.

Rule: a slice lies in one segment, begins at a batch, and ends where the log may be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from headworks._broker.log.aborted_index import AbortedTransaction
from headworks._broker.log.index import MappedIndex
from headworks._broker.log.recovery_point import LogPosition
from headworks._broker.log.segment import LogSegment
from headworks._kafka.records.batch import LENGTH_PREFIX
from headworks._kafka.records.file_slice import FileSlice
from headworks.errors import RefusedError


class OffsetOutOfRangeError(RefusedError):
    """The log does not hold this offset: it was removed, or is not written yet."""


def find_slice(
    segments: Sequence[LogSegment],
    base_offsets: Sequence[int],
    offset: int,
    max_bytes: int,
    end: LogPosition,
    *,
    at_least_one: bool,
) -> tuple[LogSegment, FileSlice]:
    """Return the slice from the batch that holds `offset`, and its segment.

    With `at_least_one` the first batch is whole, however large it is.
    """
    at = bisect_right(base_offsets, offset) - 1
    while offset < end.offset and at < len(segments):
        segment = segments[at]
        if segment.base_offset > end.segment_base_offset:
            break
        last = segment.base_offset == end.segment_base_offset
        limit = end.position if last else segment.size
        batch = segment.find_batch(offset)
        if batch is not None and batch.position < limit:
            batch_end = batch.position + LENGTH_PREFIX + batch.length
            stop = batch.position + max_bytes
            if stop > limit:
                stop = limit
            if stop < batch_end:
                stop = batch_end if at_least_one else batch.position
            elif stop < limit:
                stop = max(batch_end, segment.batch_boundary_before(stop))
            if isinstance(segment.index, MappedIndex):  # it is sealed
                stop = segment.chained_until(batch, stop)
            return segment, FileSlice(segment.file, batch.position, stop - batch.position)
        at += 1
    return segments[-1], FileSlice(segments[-1].file, 0, 0)


def aborted_between(
    segments: Iterable[LogSegment], first: int, stop: int
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions of `segments` that have records in these offsets."""
    found: list[AbortedTransaction] = []
    for segment in segments:
        if segment.next_offset <= first:
            continue
        for aborted in segment.aborted.from_offset(first):
            if aborted.first < stop:
                found.append(aborted)
            if aborted.last_stable >= stop:
                return tuple(found)
    return tuple(found)
