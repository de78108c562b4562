"""One segment: a file of record batches named by the offset of its first record, and its index.

Rules:

- Batches lie in the file exactly as they came, but for base offset and leader epoch.
- Only the newest segment of a partition is written. `seal` puts it on disk before it makes the
  index file, so a segment that has a successor is durable and whole.
- A reader holds a `Descriptor`; the file stays open until the last reader lets go, even if
  retention has removed it meanwhile.
- An append either lands whole or leaves the file as it was.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headworks._atomic_file import sync_folder
from headworks._broker.log.index import INDEX_INTERVAL_BYTES, GrowingIndex, Index, MappedIndex
from headworks._broker.log.open_file import SegmentFile
from headworks._kafka.records.batch import HEADER, HEADER_SIZE, LENGTH_PREFIX, MAGIC, Batch, Buffer
from headworks.errors import CorruptError, RefusedError

__all__ = [
    "NO_TIMESTAMP",
    "FlushFailedError",
    "LogSegment",
    "read_headers",
    "segment_path",
]

_log = logging.getLogger(__name__)

NO_TIMESTAMP = -1
_MAX_BUFFERS = 1000  # of one writev call; the kernel's limit is 1024
_READ_AHEAD_BYTES = INDEX_INTERVAL_BYTES + HEADER_SIZE


class FlushFailedError(RefusedError):
    """The kernel could not put a segment on disk, and may have dropped what it held of it."""


def segment_path(folder: Path, base_offset: int) -> Path:
    """The path of the segment that starts at `base_offset`."""
    return folder / f"{base_offset:020d}.log"


class LogSegment:
    """A segment of which everything is known: size, next offset, largest timestamp, index."""

    def __init__(
        self,
        path: Path,
        *,
        size: int = 0,
        next_offset: int | None = None,
        max_timestamp: int = NO_TIMESTAMP,
        index: Index | None = None,
    ) -> None:
        self.path = path
        self.base_offset = int(path.stem)
        self.file = SegmentFile(path)
        self.size = size
        self.next_offset = self.base_offset if next_offset is None else next_offset
        self.max_timestamp = max_timestamp
        self.index = GrowingIndex() if index is None else index
        self.folder_synced = False  # whether the folder's entry of the file is known to be on disk

    @property
    def index_path(self) -> Path:
        """Where a sealed segment keeps its index."""
        return self.path.with_suffix(".index")

    def append(
        self,
        buffers: Sequence[Buffer],
        batches: Sequence[tuple[int, int, int]],
        next_offset: int,
    ) -> None:
        """Write `buffers` at the end; of each batch: base offset, size, largest timestamp.

        On OSError the file is as before.
        """
        try:
            written = _write_all(self.file.fd, buffers, self.size)
        except OSError:
            os.ftruncate(self.file.fd, self.size)
            raise
        index, position = self.index, self.size
        assert isinstance(index, GrowingIndex)
        latest = self.max_timestamp
        for base, size, timestamp in batches:
            if position >= index.next_position:
                index.append(base - self.base_offset, position, latest)
            position += size
            if timestamp > latest:  # `max` takes three times as long
                latest = timestamp
        self.max_timestamp = latest
        self.next_offset = next_offset
        self.size += written

    def sync(self) -> None:
        """Put the data, and once the file's name, on disk. FlushFailedError if that fails."""
        try:
            os.fdatasync(self.file.fd)
            if not self.folder_synced:
                sync_folder(self.path.parent)
                self.folder_synced = True
        except OSError as error:
            raise FlushFailedError(f"{self.path}: flush failed: {error}") from error

    def seal(self) -> None:
        """Change to a mapped index; the segment is on disk and will not be written again."""
        self.save_index()
        self.index = MappedIndex(self.index_path)

    def save_index(self) -> None:
        """Write the index file of a segment that was being written."""
        if self.size and isinstance(self.index, GrowingIndex):
            self.index.write(self.index_path)

    def find_batch(self, offset: int) -> Batch | None:
        """The header of the batch that holds `offset` or is the first after it.

        CorruptError if damage lies in between.
        """
        relative = offset - self.base_offset
        position, end = self._start_position(lambda index: index.at_offset(relative)), self.size
        batch = None
        for batch in read_headers(self.file.fd, position, end):
            if batch.last_offset >= offset:
                return batch
        self._check_end(position if batch is None else batch.position + batch.size, end)
        return None

    def find_batch_by_time(self, timestamp: int, first: int) -> Batch | None:
        """The header of the first batch that ends at `first` or later and has such a record.

        That is one at or after `timestamp`.
        """
        if self.max_timestamp < timestamp or self.next_offset <= first:
            return None
        position, end = self._start_position(lambda index: index.at_time(timestamp)), self.size
        if first > self.base_offset:
            before = first - self.base_offset - 1  # never what the loop is just writing
            position = max(position, self._start_position(lambda index: index.at_offset(before)))
        batch = None
        for batch in read_headers(self.file.fd, position, end):
            if batch.max_timestamp >= timestamp and batch.last_offset >= first:
                return batch
        self._check_end(position if batch is None else batch.position + batch.size, end)
        return None

    def max_timestamp_between(self, first: int, stop: int) -> int:
        """The largest timestamp of the batches between: from the one with `first` to `stop`.

        Most segments lie wholly between, or have their latest there, and know it; of others the
        batches are gone through.
        """
        index = self.index
        if first <= self.base_offset:
            if self.next_offset <= stop or not isinstance(index, GrowingIndex):
                return self.max_timestamp
            latest, position = index.latest_before(stop - self.base_offset)
        else:
            known = self.find_batch_by_time(self.max_timestamp, self.base_offset)
            if known is not None and first <= known.last_offset < stop:
                return self.max_timestamp
            before = first - self.base_offset - 1
            latest, position = (
                NO_TIMESTAMP,
                self._start_position(lambda index: index.at_offset(before)),
            )
        for batch in read_headers(self.file.fd, position, self.size):
            if batch.base_offset >= stop:
                break
            if batch.last_offset >= first:
                latest = max(latest, batch.max_timestamp)
        return latest

    def batch_boundary_before(self, end: int) -> int:
        """Where a piece had better end than at `end`, which may be inside a batch: before it.

        That is where the index has an entry, so less than 4 KB of whole batches are left out too,
        and `end` stays where no more than that would be saved.
        """
        position = self.index.at_position(end)
        return position if end - position > INDEX_INTERVAL_BYTES else end

    def headers(self, position: int = 0) -> Iterator[Batch]:
        """Batch headers from the batch at `position` on; records are not read.

        CorruptError at the first that cannot be.
        """
        end = self.size
        for batch in read_headers(self.file.fd, position, end):
            yield batch
            position = batch.position + batch.size
        self._check_end(position, end)

    def _check_end(self, position: int, end: int) -> None:
        """What was walked over must have ended at the end."""
        if position != end:
            raise CorruptError(f"{self.path}: there is no batch at byte {position}")

    def _start_position(self, look_up: Callable[[Index], tuple[int, int]]) -> int:
        """The position that the index gives.

        An index that was read from a file may be another segment's: then it is made again.
        """
        relative, position = look_up(self.index)
        if position and isinstance(self.index, MappedIndex):
            found = next(read_headers(self.file.fd, position, self.size), None)
            offset = self.base_offset + relative
            if found is None or found.base_offset != offset:
                about = {"index": str(self.index_path)}
                _log.warning(
                    "%s is not of its segment, and is made again", self.index_path, extra=about
                )
                self._rebuild_index()
                _, position = look_up(self.index)
        return position

    def _rebuild_index(self) -> None:
        """Make the index again; who looks something up in the old one meanwhile goes on."""
        index, latest = GrowingIndex(), NO_TIMESTAMP
        for batch in self.headers():
            index.append(batch.base_offset - self.base_offset, batch.position, latest)
            latest = max(latest, batch.max_timestamp)
        self.index = index
        self.index_path.unlink(missing_ok=True)

    def read(self, batch: Batch) -> bytes:
        """The bytes of a batch."""
        return os.pread(self.file.fd, batch.size, batch.position)

    def last_write_ms(self) -> int:
        """When the segment was last written, by the file's time."""
        return os.fstat(self.file.fd).st_mtime_ns // 1_000_000

    def created_ms(self) -> int:
        """When the segment was begun: its snapshot of producers was written then."""
        try:
            return self.path.with_suffix(".producers").stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return self.last_write_ms()

    def remove_files(self) -> None:
        """Delete from disk; readers that hold the descriptor read on."""
        self.file.close_when_unused()
        for path in (self.path, self.index_path, self.path.with_suffix(".producers")):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of index and file."""
        self.index.close()
        self.file.close()


def read_headers(fd: int, position: int, end: int) -> Iterator[Batch]:
    """Headers of the batches of a file between `position` and `end`, read in pieces of 4 KB.

    Stops before a header that is not whole, or that cannot be; offsets are not judged.
    """
    window, window_start = b"", position
    while end - position >= HEADER_SIZE:
        inside = position - window_start
        if inside + HEADER_SIZE > len(window):
            window = os.pread(fd, min(_READ_AHEAD_BYTES, end - position), position)
            window_start, inside = position, 0
            if len(window) < HEADER_SIZE:
                return
        batch = Batch._make((*HEADER.unpack_from(window, inside), position))
        size = LENGTH_PREFIX + batch.length
        if batch.magic != MAGIC or size < HEADER_SIZE or position + size > end:
            return
        yield batch
        position += size


def _write_all(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    total = 0
    for first in range(0, len(buffers), _MAX_BUFFERS):
        chunk = list(buffers[first : first + _MAX_BUFFERS])
        wanted = sum(map(len, chunk))
        written = os.pwritev(fd, chunk, position + total)
        if written < wanted:  # a full disk or a signal: go on, so that the kernel tells which
            rest = b"".join(chunk)[written:]
            while rest:
                step = os.pwrite(fd, rest, position + total + written)
                written += step
                rest = rest[step:]
        total += wanted
    return total
