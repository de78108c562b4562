"""One segment of a log: a file of record batches, named by its base offset, and its index.

Rules:

- A batch is stored as the producer sent it, except for its base offset and leader epoch.
- Only the newest segment of a log, the active one, is written. A log flushes it before `seal`
  makes its index file, so every segment with a successor is whole and on disk.
- `sync` makes what was appended durable. A producer that asked for `acks=all` is answered after it.
- An append either succeeds as a whole or leaves the file as it was.
- A reader refers to the `SegmentFile`, which stays open until its last reader is done, even if
  retention removes the file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from headworks import _system_calls
from headworks._atomic_file import sync_folder
from headworks._broker.log.aborted_index import SUFFIX, AbortedIndex
from headworks._broker.log.headers import find_header, read_headers
from headworks._broker.log.index import INDEX_INTERVAL_BYTES, GrowingIndex, Index, MappedIndex
from headworks._broker.log.open_file import SegmentFile
from headworks._kafka.records.batch import Batch, Buffer
from headworks.errors import CorruptError, RefusedError

_log = logging.getLogger(__name__)

NO_TIMESTAMP = -1
_HEADERS_PER_CHECK = 512
_MAX_BUFFERS = 1000  # of one pwritev call; the kernel allows 1024
_LOST_FIX = (
    "find out who changed it. Stop the broker, and put the file back or restore it from a copy"
    " (docs/backup.md)"
)


class FlushFailedError(RefusedError):
    """The kernel failed to flush a segment, and may have dropped its unwritten pages."""


class SegmentLostError(FlushFailedError):
    """Somebody cut, deleted, or replaced the file of a segment that is being written."""


def segment_path(folder: Path, base_offset: int) -> Path:
    """Return the path of the segment with this base offset."""
    return folder / f"{base_offset:020d}.log"


def salvage_fix(folder: Path) -> str:
    """Return the way out of damage in the folder of a partition."""
    return (
        f"restore {folder} from a copy (docs/backup.md), or stop the broker and run"
        f" `headworks log salvage {folder} --repair`, which keeps every intact batch and the"
        " damaged files"
    )


class LogSegment:
    """A segment whose size, next offset, and largest timestamp are known."""

    def __init__(
        self,
        path: Path,
        *,
        size: int = 0,
        next_offset: int | None = None,
        max_timestamp: int = NO_TIMESTAMP,
        index: Index | None = None,
    ) -> None:
        self.path = path  # <base offset, 20 digits>.log
        self._name = str(path)  # for `sync`: a Path takes longer at every flush
        self.base_offset = int(path.stem)  # no record has a smaller offset
        self.file = SegmentFile(path)  # open for reading and writing
        self.size = size  # bytes of whole batches
        # the offset after the last record; in a compacted segment, where the next segment starts
        self.next_offset = self.base_offset if next_offset is None else next_offset
        self.max_timestamp = max_timestamp  # of all batches, in ms
        self.index = GrowingIndex() if index is None else index  # in memory while active
        self.aborted = AbortedIndex()  # of the transactions that end here
        self.gaps = False  # whether compaction may have removed batches
        # bytes from..to whose batches follow each other, and the offset that follows them
        self._chained = (0, 0, self.base_offset)
        self.folder_synced = False  # whether the name of the file is known to be on disk

    @property
    def index_path(self) -> Path:
        """The index file of a sealed segment."""
        return self.path.with_suffix(".index")

    def append(
        self,
        buffers: Sequence[Buffer],
        batches: Sequence[tuple[int, int, int]],
        next_offset: int,
    ) -> None:
        """Append the bytes in `buffers`; `batches` are (base offset, size, largest timestamp).

        On OSError the file is as it was. Raises SegmentLostError if it is not as it was left.
        """
        fd, begin = self.file.fd, self.size
        end = os.lseek(fd, 0, os.SEEK_END)  # a fifth of the time of `fstat`
        if end < begin:
            raise SegmentLostError(
                f"{self.path}: the file has {end} bytes, and the broker wrote {begin}",
                fix=_LOST_FIX,
            )
        try:
            written = _write_all(fd, buffers, begin)
        except OSError:
            os.ftruncate(fd, begin)
            raise
        index, position = self.index, begin
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
        self.size = begin + written

    def sync(self) -> None:
        """Flush the data, and the first time also the folder; FlushFailedError if that fails.

        Raises SegmentLostError if the file is no longer in its place: a restart would not find it.
        """
        size = self.size
        try:
            _system_calls.sync_data(self.file.fd)
            if not self.folder_synced:
                sync_folder(self.path.parent)
                self.folder_synced = True
        except OSError as error:
            raise FlushFailedError(f"{self.path}: flush failed: {error}") from error
        if not self._in_place(size) and not self.file.removed:
            raise SegmentLostError(
                f"{self.path}: the file was cut, deleted, or replaced while the broker wrote to it",
                fix=_LOST_FIX,
            )

    def _in_place(self, size: int) -> bool:
        """Whether the path still names the open file, with at least `size` bytes."""
        try:
            named = os.stat(self._name)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == self.file.identity and named.st_size >= size

    def seal(self) -> None:
        """Replace the index in memory by its file. It must be flushed; it is final."""
        self.save_index()
        self.index = MappedIndex(self.index_path)

    def save_index(self) -> None:
        """Write the index files of an active segment."""
        if self.size and isinstance(self.index, GrowingIndex):
            self.index.write(self.index_path)
        if len(self.aborted):
            self.aborted.write(self.path.with_suffix(SUFFIX), self.next_offset)

    def find_batch(self, offset: int) -> Batch | None:
        """Return the header of the batch that holds `offset`, or of the first one after it.

        Raises CorruptError if the search meets damage.
        """
        relative = offset - self.base_offset
        index, end = self.index, self.size
        if isinstance(index, GrowingIndex):  # built in memory, from this very file
            position = index.at_offset(relative)[1]
        else:
            position = self._start_position(lambda index: index.at_offset(relative))
        expected = None if position else self.base_offset
        found, position, expected = find_header(self.file.fd, position, end, offset, expected)
        if found is not None:
            return found
        batch = sparse = None  # the latter may hold `offset` if the next batch starts after it
        for batch in read_headers(self.file.fd, position, end):
            if expected is not None and batch.base_offset != expected:
                self._check_place(batch, expected)
            last = batch.last_offset
            expected = last + 1
            if sparse is not None and batch.base_offset > offset:
                return sparse
            sparse = None
            if last >= offset:
                if offset - batch.base_offset < batch.record_count:
                    return batch
                sparse = batch  # compacted, or its last offset is damaged
        if sparse is not None:
            return sparse
        self._check_end(position if batch is None else batch.position + batch.size, end)
        return None

    def chained_until(self, first: Batch, stop: int) -> int:
        """Return up to where the batches from `first` on follow each other, at most `stop`.

        The segment is sealed: the broker does not read back what it just wrote. A base offset lies
        outside the CRC, so no client notices a wrong one. The headers are checked once, a bounded
        number at a time. Raises CorruptError if `first` is wrong.
        """
        begin, position, expected = self._chained
        if not begin <= first.position <= position:
            begin, position, expected = first.position, first.position, first.base_offset
        if position >= stop:
            return stop
        for batch in islice(read_headers(self.file.fd, position, self.size), _HEADERS_PER_CHECK):
            try:
                if batch.base_offset != expected:
                    self._check_place(batch, expected)
            except CorruptError:
                if batch.position <= first.position:
                    raise
                return batch.position
            position, expected = batch.position + batch.size, batch.last_offset + 1
            self._chained = begin, position, expected
            if position >= stop:
                break
        return min(stop, position) if position > first.position else stop

    def _check_place(self, batch: Batch, expected: int) -> None:
        """Raise CorruptError unless a batch follows the one before it, or the next follows it."""
        if self.gaps and batch.base_offset > expected:
            return
        own_end, end = batch.last_offset + 1, batch.position + batch.size
        following = next(read_headers(self.file.fd, end, self.size), None)
        next_offset = self.next_offset if following is None else following.base_offset
        if own_end != next_offset and not (self.gaps and own_end < next_offset):
            raise CorruptError(
                f"{self.path}: the batch at byte {batch.position} has offset {batch.base_offset},"
                f" where {expected} follows",
                fix=salvage_fix(self.path.parent),
            )

    def find_batch_by_time(self, timestamp: int, first: int) -> Batch | None:
        """Return the header of the first batch with a record at or after `timestamp`.

        Batches that end before the offset `first` are skipped.
        """
        if self.max_timestamp < timestamp or self.next_offset <= first:
            return None
        position, end = self._start_position(lambda index: index.at_time(timestamp)), self.size
        if first > self.base_offset:
            before = first - self.base_offset - 1  # never a batch that is being appended
            position = max(position, self._start_position(lambda index: index.at_offset(before)))
        batch = None
        for batch in read_headers(self.file.fd, position, end):
            if batch.max_timestamp >= timestamp and batch.last_offset >= first:
                return batch
        self._check_end(position if batch is None else batch.position + batch.size, end)
        return None

    def max_timestamp_between(self, first: int, stop: int) -> int:
        """Return the largest timestamp from the batch that holds `first` to the offset `stop`.

        If the whole segment, or its largest timestamp, lies in this range, nothing is read.
        Otherwise the headers of the batches are.
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
            latest = NO_TIMESTAMP
            position = self._start_position(lambda index: index.at_offset(before))
        for batch in read_headers(self.file.fd, position, self.size):
            if batch.base_offset >= stop:
                break
            if batch.last_offset >= first:
                latest = max(latest, batch.max_timestamp)
        return latest

    def batch_boundary_before(self, end: int) -> int:
        """Return the position of the last indexed batch before `end`, to cut a slice there.

        `end` may lie inside a batch. If the cut would save at most one index interval, 4 KB,
        return `end` itself.
        """
        position = self.index.at_position(end)
        return position if end - position > INDEX_INTERVAL_BYTES else end

    def offset_from(self, position: int) -> int:
        """Return an offset that no record before `position` has, the next indexed one."""
        relative = self.index.offset_from(position)
        return self.next_offset if relative is None else self.base_offset + relative

    def headers(self, position: int = 0) -> Iterator[Batch]:
        """Yield the headers of all batches from `position` on.

        Raises CorruptError at the first invalid one. Records are not read.
        """
        end = self.size
        for batch in read_headers(self.file.fd, position, end):
            yield batch
            position = batch.position + batch.size
        self._check_end(position, end)

    def _check_end(self, position: int, end: int) -> None:
        """The last batch must end exactly at the end of the file."""
        if position != end:
            raise CorruptError(
                f"{self.path}: there is no batch at byte {position}",
                fix=salvage_fix(self.path.parent),
            )

    def _start_position(self, look_up: Callable[[Index], tuple[int, int]]) -> int:
        """Return the position that the index gives for a lookup.

        The index file may belong to an earlier segment of this name: if so, rebuild the index.
        """
        relative, position = look_up(self.index)
        if position and isinstance(self.index, MappedIndex):
            found = next(read_headers(self.file.fd, position, self.size), None)
            offset = self.base_offset + relative
            if found is None or found.base_offset != offset:
                about = {"index": str(self.index_path)}
                _log.warning(
                    "%s does not match its segment: rebuilding it", self.index_path, extra=about
                )
                self._rebuild_index()
                _, position = look_up(self.index)
        return position

    def _rebuild_index(self) -> None:
        """Rebuild the index. Lookups in progress keep using the old one."""
        index, latest = GrowingIndex(), NO_TIMESTAMP
        for batch in self.headers():
            index.append(batch.base_offset - self.base_offset, batch.position, latest)
            latest = max(latest, batch.max_timestamp)
        self.index = index
        self.index_path.unlink(missing_ok=True)

    def read(self, batch: Batch) -> bytes:
        """Return the bytes of a batch."""
        return os.pread(self.file.fd, batch.size, batch.position)

    def last_write_ms(self) -> int:
        """Return the modification time of the file, in ms."""
        return os.fstat(self.file.fd).st_mtime_ns // 1_000_000

    def created_ms(self) -> int:
        """Return when the segment was started, in ms: the time of its producer snapshot."""
        try:
            return self.path.with_suffix(".producers").stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return self.last_write_ms()

    def remove_files(self) -> None:
        """Delete the files. Readers keep the open file."""
        self.file.close_when_unused()
        for suffix in (".log", ".index", ".producers", SUFFIX):
            self.path.with_suffix(suffix).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the index and the file."""
        self.index.close()
        self.file.close()


def _write_all(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    total = 0
    for first in range(0, len(buffers), _MAX_BUFFERS):
        chunk = buffers[first : first + _MAX_BUFFERS]
        wanted = sum(map(len, chunk))
        written = os.pwritev(fd, chunk, position + total)
        if written < wanted:  # the disk is full, or a signal came: the next write tells which
            rest = b"".join(chunk)[written:]
            while rest:
                step = os.pwrite(fd, rest, position + total + written)
                written += step
                rest = rest[step:]
        total += wanted
    return total
