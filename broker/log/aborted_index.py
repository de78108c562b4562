"""The aborted transactions whose markers lie in one segment, and the file that keeps them.

A reader of committed records gets the aborted transactions of what it reads, and skips their
records. A sealed segment with such transactions has a file `<base>.aborted`: `HWA1`, a checksum,
the offset where the segment ends, and four 64-bit numbers for each transaction.

Rule: the file is a cache. The log alone rebuilds it (`recovered_producers`).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headworks._atomic_file import replace_file

SUFFIX = ".aborted"
_MAGIC = b"HWA1"
_HEAD = struct.Struct(">Iq")  # checksum of the rest, and the offset where the segment ends
_ENTRY = struct.Struct(">qqqq")


class AbortedTransaction(NamedTuple):
    """A transaction whose records no reader of committed records gets."""

    producer_id: int
    first: int  # offset of its first record
    last: int  # offset of its marker
    last_stable: int  # the last stable offset after its marker


class AbortedIndex:
    """The aborted transactions whose markers one segment holds, by the offset of the marker."""

    def __init__(self) -> None:
        self._fields = array("q")  # of each transaction, one after the other

    def __len__(self) -> int:
        return len(self._fields) // len(AbortedTransaction._fields)

    def __getitem__(self, number: int) -> AbortedTransaction:
        width = len(AbortedTransaction._fields)
        return AbortedTransaction(*self._fields[number * width : (number + 1) * width])

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose marker is the last one."""
        self._fields.extend(aborted)

    def from_offset(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yield the transactions whose marker is at `offset` or later."""
        first = bisect_left(range(len(self)), offset, key=lambda number: self[number].last)
        for number in range(first, len(self)):
            yield self[number]

    def write(self, path: Path, end: int) -> None:
        """Write the index file of a segment that ends at the offset `end`."""
        body = b"".join(_ENTRY.pack(*aborted) for aborted in self.from_offset(0))
        head = _HEAD.pack(crc32c(struct.pack(">q", end) + body), end)
        replace_file(path, _MAGIC + head + body, durable=False)

    @classmethod
    def load(cls, path: Path, end: int) -> AbortedIndex | None:
        """Read the file of a segment; None if it is missing, damaged, or of another segment."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        start = len(_MAGIC) + _HEAD.size
        if len(data) < start or not data.startswith(_MAGIC):
            return None
        checksum, written = _HEAD.unpack_from(data, len(_MAGIC))
        body = data[start:]
        if (
            written != end
            or len(body) % _ENTRY.size
            or crc32c(struct.pack(">q", end) + body) != checksum
        ):
            return None
        index = cls()
        for fields in _ENTRY.iter_unpack(body):
            index.append(AbortedTransaction(*fields))
        return index
