"""Search the segments of a log by time. It reads batches, so it may run in a thread.

Rule: only records from the log start offset up to the readable end are found.
"""

from __future__ import annotations

from collections.abc import Sequence

from headworks._broker.log.segment import NO_TIMESTAMP, LogSegment
from headworks._kafka.records import InvalidBatchError, iter_records
from headworks._kafka.records.batch import Batch

_SEARCH_LIMIT_BYTES = 64 << 20  # of one decompressed batch that is searched for a timestamp


def offset_at_time(
    segments: Sequence[LogSegment], start: int, end: int, timestamp: int
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record of `start`..`end` at or after `timestamp`.

    The header of a batch stands for its records if they do not decode.
    """
    for segment in segments:
        batch = segment.find_batch_by_time(timestamp, start)
        if batch is not None and batch.base_offset < start:
            found = _find_record(segment, batch, timestamp, start)
            if found is not None:
                return found
            # its matching records lie before the log start offset: search the batches after it
            batch = segment.find_batch_by_time(timestamp, batch.last_offset + 1)
        if batch is None:
            continue
        if batch.base_offset >= end:
            return None
        header = batch.base_offset, batch.base_timestamp
        return _find_record(segment, batch, timestamp, start) or header
    return None


def latest_timestamp(
    segments: Sequence[LogSegment], start: int, end: int
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the record of `start`..`end` with the largest timestamp."""
    latest = max(segment.max_timestamp_between(start, end) for segment in segments)
    return None if latest == NO_TIMESTAMP else offset_at_time(segments, start, end, latest)


def _find_record(
    segment: LogSegment, batch: Batch, timestamp: int, start: int
) -> tuple[int, int] | None:
    """Return the first matching record of a batch, None if there is none or it is damaged."""
    data, header = segment.read(batch), batch._replace(position=0)
    try:
        for record in iter_records(data, header, limit=_SEARCH_LIMIT_BYTES):
            # the producer wrote the record's own fields: trust them within the header's bounds
            in_batch = start <= record.offset <= batch.last_offset
            if in_batch and timestamp <= record.timestamp <= batch.max_timestamp:
                return record.offset, record.timestamp
    except InvalidBatchError:
        pass
    return None
