"""The compiled loop that finds the records of batches: where each key and value lie.

Rule: every length is checked against the batch; the first batch that breaks the format is reported.
"""

from __future__ import annotations

from typing import Any

from hadoop_loader._fetch.messages import MAX_TIMESTAMP_MS
from hadoop_loader._jit.jit import jit
from hadoop_loader._jit.primitives import read_varint

__all__ = ["find_records"]


def _find_records(
    data: Any,
    starts: Any,
    ends: Any,
    counts: Any,
    bases: Any,
    times: Any,
    stamps: Any,
    offsets: Any,
    timestamps: Any,
    keys: Any,
    values: Any,
) -> Any:
    """Fill the last four arrays with the records; return -1, or the number of a broken batch.

    A batch lies at `starts`..`ends`, and has `counts` records. `bases` and `times` are the first
    offset and timestamp. `stamps` is the append time of all its records, -1 if it has none.
    """
    row = 0
    for batch in range(starts.size):
        at, end = starts[batch], ends[batch]
        for _ in range(counts[batch]):
            size, at = read_varint(data, at, end)
            if at < 0 or size < 1 or size > end - at:
                return batch
            stop = at + size
            time, at = read_varint(data, at + 1, stop)
            if at < 0:
                return batch
            delta, at = read_varint(data, at, stop)
            if at < 0:
                return batch
            for spans in (keys, values):
                length, at = read_varint(data, at, stop)
                if at < 0 or length > stop - at:
                    return batch
                if length < 0:
                    spans[row, 0] = -1
                    spans[row, 1] = -1
                else:
                    spans[row, 0] = at
                    spans[row, 1] = at + length
                    at += length
            offsets[row] = bases[batch] + delta
            stamp = stamps[batch]
            timestamps[row] = min(
                max(times[batch] + time if stamp < 0 else stamp, 0), MAX_TIMESTAMP_MS
            )
            row += 1
            at = stop
    return -1


find_records = jit(_find_records)
