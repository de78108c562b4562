"""The sparse index of a segment, by offset and by time.

There is one entry for about every 4 KB of log. It holds the offset relative to the base offset of
the segment, the position in the file, and the largest timestamp of all batches before that
position. A lookup bisects for the last entry at or before the target, and returns its relative
offset and position, or (0, 0) for the start of the segment. The caller reads on from there.

On disk (`<base>.index`) an entry has 16 bytes, big endian: `u32 offset, u32 position,
i64 timestamp`. An active segment keeps its index in memory; a sealed one maps the file. The file
is a cache: recovery rebuilds it if it is missing or implausible.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Protocol

from headworks._atomic_file import replace_file

INDEX_INTERVAL_BYTES = 4096
_ENTRY = struct.Struct(">IIq")
_START = (0, 0)


class Index(Protocol):
    """The lookups that a segment needs."""

    def at_offset(self, relative: int) -> tuple[int, int]:
        """Return the entry of the last indexed batch that starts at or before `relative`."""

    def at_time(self, timestamp: int) -> tuple[int, int]:
        """Return an entry before which every timestamp is smaller than `timestamp`."""

    def at_position(self, position: int) -> int:
        """Return the position of the last indexed batch at or before `position`."""

    def offset_from(self, position: int) -> int | None:
        """Return the relative offset of the first indexed batch at or after `position`."""

    def close(self) -> None:
        """Close the file."""


class GrowingIndex:
    """The index of an active segment, in memory."""

    def __init__(self) -> None:
        self._offsets = array("I")  # of each entry, relative to the base offset
        self._positions = array("I")  # of each entry, in the file
        self._times = array("q")  # of each entry, the largest timestamp before it
        self.next_position = 0  # a batch before this position gets no entry

    def append(self, relative: int, position: int, earlier_timestamp: int) -> None:
        """Add an entry for a batch, if one is due. `earlier_timestamp`: the largest before it."""
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

    def offset_from(self, position: int) -> int | None:
        """See `Index`."""
        number = bisect_left(self._positions, position)
        return self._offsets[number] if number < len(self._positions) else None

    def latest_before(self, relative: int) -> tuple[int, int]:
        """Return the largest timestamp before the last indexed batch below `relative`.

        The second value is the position of that batch.
        """
        number = bisect_left(self._offsets, relative) - 1
        return (self._times[number], self._positions[number]) if number >= 0 else (-1, 0)

    def _entry(self, number: int) -> tuple[int, int]:
        return (self._offsets[number], self._positions[number]) if number >= 0 else _START

    def write(self, path: Path) -> None:
        """Write the index file."""
        entries = zip(self._offsets, self._positions, self._times, strict=True)
        data = b"".join(_ENTRY.pack(*entry) for entry in entries)
        replace_file(path, data, durable=False)

    def close(self) -> None:
        """See `Index`."""


class MappedIndex:
    """The index of a sealed segment, memory-mapped."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._count = len(self._map) // _ENTRY.size  # of entries

    @classmethod
    def open(cls, path: Path, segment_size: int) -> MappedIndex | None:
        """Open the index at `path`; None if it is missing or does not fit this segment size."""
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
        """Relative offset, position, and earlier timestamp of the last entry."""
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

    def offset_from(self, position: int) -> int | None:
        """See `Index`."""
        number = bisect_left(range(self._count), position, key=lambda i: self._entry(i)[1])
        return self._entry(number)[0] if number < self._count else None

    def close(self) -> None:
        """See `Index`."""
        self._map.close()

    def _entry(self, number: int) -> tuple[int, int, int]:
        relative, position, timestamp = _ENTRY.unpack_from(self._map, number * _ENTRY.size)
        return relative, position, timestamp
