"""Rebuild what a log knows of its producers and transactions, when it is opened.

The newest valid snapshot and the batch headers after it give the producer states and the open
transactions. The indexes of aborted transactions are files of the segments.

Rules:

- Snapshots and indexes are caches. If one is missing or damaged, the headers replace it.
- A segment without an index has no aborted transactions only if the snapshot after it says so.
- Only a marker ends a transaction, so a marker that cannot be read refuses the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from headworks._broker.log.aborted_index import SUFFIX, AbortedIndex
from headworks._broker.log.producer_state import (
    ProducerStates,
    aborted_before,
    note_marker,
)
from headworks._broker.log.recovery_point import LogPosition
from headworks._broker.log.segment import LogSegment, salvage_fix
from headworks._kafka.records.batch import CONTROL, TRANSACTIONAL, Batch, InvalidBatchError
from headworks._kafka.records.control import commits
from headworks.errors import CorruptError


def recovered_producers(segments: Sequence[LogSegment]) -> ProducerStates:
    """Return the producer states at the end of a log, and complete the aborted indexes.

    Raises CorruptError for a marker or a header that cannot be read.
    """
    unindexed = [number for number in range(len(segments) - 1) if not _load(segments, number)]
    first = min(unindexed, default=len(segments) - 1)
    while (snapshot := _snapshot(segments[first])) is None and first > 0:
        first -= 1
    states = ProducerStates() if snapshot is None else snapshot
    opened = states.transactions.open
    opened.update({one: _position(segments, at.offset) for one, at in opened.items()})
    for segment in segments[first:]:
        _replay(states, segment)
        if segment is not segments[-1] and unindexed:
            segment.aborted.write(segment.path.with_suffix(SUFFIX), segment.next_offset)
    return states


def _load(segments: Sequence[LogSegment], number: int) -> bool:
    """Load the index of a sealed segment; false if only the log knows it."""
    segment = segments[number]
    index = AbortedIndex.load(segment.path.with_suffix(SUFFIX), segment.next_offset)
    if index is None:
        return aborted_before(segments[number + 1].path.with_suffix(".producers")) == 0
    segment.aborted = index
    return True


def _snapshot(segment: LogSegment) -> ProducerStates | None:
    try:
        return ProducerStates.load(segment.path.with_suffix(".producers").read_bytes())
    except FileNotFoundError:
        return None


def _position(segments: Sequence[LogSegment], offset: int) -> LogPosition:
    """Return where the record with this offset lies; retention may have removed it."""
    for segment in segments:
        if segment.base_offset <= offset < segment.next_offset:
            batch = segment.find_batch(offset)
            at = 0 if batch is None else batch.position
            return LogPosition(offset, segment.base_offset, at)
    return LogPosition(offset, segments[0].base_offset, 0)


def _replay(states: ProducerStates, segment: LogSegment) -> None:
    segment.aborted = AbortedIndex()
    for batch in segment.headers():
        if batch.producer_id < 0:
            continue
        if batch.attributes & CONTROL:
            commit = _commits(segment, batch)
            note_marker(states, segment, batch, commit, exposed=batch.last_offset + 1)
            continue
        states.update(batch, batch.base_offset)
        if batch.attributes & TRANSACTIONAL:
            at = LogPosition(batch.base_offset, segment.base_offset, batch.position)
            states.transactions.begin(batch.producer_id, at)


def _commits(segment: LogSegment, marker: Batch) -> bool | None:
    try:
        return commits(segment.read(marker), marker)
    except InvalidBatchError as error:
        raise CorruptError(
            f"{segment.path}: the control batch at byte {marker.position} is damaged: {error}",
            fix=salvage_fix(segment.path.parent),
        ) from None
