"""The sparse index of a segment, by offset and by time.

One entry about every 4 KB of log: (offset relative to the segment's base, position in the file,
largest timestamp of all batches before that position). Both ways of looking up are a bisection
that gives the entry (relative offset, position) at or before the one sought, or the segment's start
as (0, 0); the caller walks on from there.

On disk (`<base>.index`): entries of 16 bytes, big endian, `u32 offset, u32 position,
i64 timestamp`. A segment that is being written keeps its index in memory only; a sealed one maps
its file. The file is a cache: when it is missing or implausible it is built again from the log.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Protocol

from headworks._atomic_file import replace_file

__all__ = ["INDEX_INTERVAL_BYTES", "GrowingIndex", "Index", "MappedIndex"]

INDEX_INTERVAL_BYTES = 4096
_ENTRY = struct.Struct(">IIq")
_START = (0, 0)


class Index(Protocol):
    """What a segment asks of its index."""

    def at_offset(self, relative: int) -> tuple[int, int]:
        """The entry of a batch that starts at or before the relative offset."""

    def at_time(self, timestamp: int) -> tuple[int, int]:
        """An entry before which no batch has a timestamp as late as `timestamp`."""

    def at_position(self, position: int) -> int:
        """The position of the last entry at or before `position`."""

    def close(self) -> None:
        """Let go of the file."""


class GrowingIndex:
    """The index of the segment that is being written."""

    def __init__(self) -> None:
        self._offsets = array("I")
        self._positions = array("I")
        self._times = array("q")
        self.next_position = 0  # a batch before it is not noted

    def append(self, relative: int, position: int, earlier_timestamp: int) -> None:
        """Tell of a batch at `position`; `earlier_timestamp` is the largest one before it."""
        if position >= self.next_position:
            self._offsets.append(relative)
            self._positions.append(position)
            self._times.append(earlier_timestamp)
            self.next_position = position + INDEX_INTERVAL_BYTES

    def at_offset(self, relative: int) -> tuple[int, int]:
        """See `Index`."""
        return self._entry(bisect_right(self._offsets, relative) - 1)

    def at_time(self, timestamp: int) -> tuple[int, int]:
        """See `Index`."""
        return self._entry(bisect_left(self._times, timestamp) - 1)

    def at_position(self, position: int) -> int:
        """See `Index`."""
        return self._entry(bisect_right(self._positions, position) - 1)[1]

    def latest_before(self, relative: int) -> tuple[int, int]:
        """The largest timestamp before a batch that starts before the relative offset, and where.

        That is the last such batch that was noted.
        """
        number = bisect_left(self._offsets, relative) - 1
        return (self._times[number], self._positions[number]) if number >= 0 else (-1, 0)

    def _entry(self, number: int) -> tuple[int, int]:
        return (self._offsets[number], self._positions[number]) if number >= 0 else _START

    def write(self, path: Path) -> None:
        """Store as a file, all of it or none."""
        entries = zip(self._offsets, self._positions, self._times, strict=True)
        data = b"".join(_ENTRY.pack(*entry) for entry in entries)
        replace_file(path, data, durable=False)

    def close(self) -> None:
        """See `Index`."""


class MappedIndex:
    """The index of a sealed segment, read from its file through the page cache."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._count = len(self._map) // _ENTRY.size

    @classmethod
    def open(cls, path: Path, segment_size: int) -> MappedIndex | None:
        """The index at `path`, or None if there is none that fits a segment of that size."""
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return None
        if size == 0 or size % _ENTRY.size:
            return None
        index = cls(path)
        first, last = index._entry(0), index._entry(index._count - 1)
        if first[1] == 0 and last[1] < segment_size:
            return index
        index.close()
        return None

    @property
    def last_entry(self) -> tuple[int, int, int]:
        """Relative offset, position and earlier timestamp of the last entry."""
        return self._entry(self._count - 1)

    def at_offset(self, relative: int) -> tuple[int, int]:
        """See `Index`."""
        found = bisect_right(range(self._count), relative, key=lambda i: self._entry(i)[0]) - 1
        return self._entry(found)[:2] if found >= 0 else _START

    def at_time(self, timestamp: int) -> tuple[int, int]:
        """See `Index`."""
        found = bisect_left(range(self._count), timestamp, key=lambda i: self._entry(i)[2]) - 1
        return self._entry(found)[:2] if found >= 0 else _START

    def at_position(self, position: int) -> int:
        """See `Index`."""
        found = bisect_right(range(self._count), position, key=lambda i: self._entry(i)[1]) - 1
        return self._entry(found)[1] if found >= 0 else 0

    def close(self) -> None:
        """See `Index`."""
        self._map.close()

    def _entry(self, number: int) -> tuple[int, int, int]:
        relative, position, timestamp = _ENTRY.unpack_from(self._map, number * _ENTRY.size)
        return relative, position, timestamp
