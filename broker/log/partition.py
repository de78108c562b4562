"""The log of one partition: append, read, flush, find by time, retention.

Rules:

- One writer (the event loop) appends and rolls; the flusher thread only calls `sync`. Readers take
  the tuple of segments as it is: it is replaced, never changed, so reading needs no lock.
- `end` is what is written, `flushed` what is on disk, `visible` what consumers may see: the flushed
  end, or the written end when the config says so. All three only grow.
- Appending is in two steps: `stage` gives a batch its offset, `commit` writes all staged batches in
  one call. When writing fails, everything staged is undone: offsets and producer states too.
- Retention goes by when a segment was last written, not by the records' own timestamps: those are
  event times, and last year's events must survive being loaded today.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headworks._atomic_file import replace_file
from headworks._broker.log.compaction_state import CompactionState
from headworks._broker.log.config import LogConfig
from headworks._broker.log.producer_state import ProducerState, ProducerStates
from headworks._broker.log.segment import NO_TIMESTAMP, LogSegment, segment_path
from headworks._kafka.records import InvalidBatchError, iter_records
from headworks._kafka.records.batch import LENGTH_PREFIX, Batch, Buffer, Plain, patch_placement
from headworks._kafka.records.file_slice import FileSlice
from headworks.errors import RefusedError

__all__ = ["LEADER_EPOCH", "MAX_RELATIVE_OFFSET", "OffsetOutOfRangeError", "PartitionLog"]

LEADER_EPOCH = 0
MAX_RELATIVE_OFFSET = (1 << 31) - 1
_TIME_SEARCH_LIMIT_BYTES = 64 << 20  # bytes of records that are looked through for a time
START_FILE = "start-offset"


class OffsetOutOfRangeError(RefusedError):
    """An offset that the log does not hold: removed already, or not written yet."""


class LogPosition(NamedTuple):
    """An offset and where it lies: the segment (by base offset) and the position in its file."""

    offset: int
    base: int
    position: int


class PartitionLog:
    """A partition's log, opened by `broker.log.open_log`."""

    def __init__(
        self,
        folder: Path,
        segments: tuple[LogSegment, ...],
        producers: ProducerStates,
        config: LogConfig,
        log_start_offset: int,
        compaction_state: CompactionState,
    ) -> None:
        self.folder = folder
        self.config = config
        self.log_start_offset = log_start_offset
        self.producers = producers
        self.compaction_state = compaction_state
        self.compacting = False  # sealed segments are being compacted: they must stay
        self._segments = segments
        self._base_offsets = tuple(segment.base_offset for segment in segments)
        active = segments[-1]
        self._next_offset = active.next_offset
        self._flushed = self._written = LogPosition(
            self._next_offset, active.base_offset, active.size
        )
        self.appended_bytes = 0  # since it was opened
        self._staged: list[Buffer] = []
        self._staged_batches: list[tuple[int, int, int]] = []
        self._staged_bytes = 0
        self._undo: list[tuple[int, ProducerState | None]] = []
        self._failed_write: OSError | None = (
            None  # a write that failed before its `commit` was called
        )

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """All segments, oldest first; the last is being written."""
        return self._segments

    @property
    def log_end_offset(self) -> int:
        """The offset after the last written record."""
        return self._written.offset

    @property
    def flushed_offset(self) -> int:
        """The offset after the last record that is on disk."""
        return self._flushed.offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that consumers may see: the high watermark."""
        return self._high_watermark.offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def nearly_full(self) -> bool:
        """Whether the active segment is about to be sealed for its size."""
        return self._segments[-1].size > self.config.segment_bytes - self.config.segment_bytes // 16

    @property
    def _high_watermark(self) -> LogPosition:
        return self._written if self.config.show_unflushed else self._flushed

    # -- append ------------------------------------------------------------------------------

    def stage(self, buffer: memoryview, batch: Batch) -> int:
        """Give a checked batch, which lies in `buffer`, its offset; it is written by `commit`.

        Raises what `ProducerStates.check` raises; OSError or FlushFailedError when the segment is
        full and no new one can be started.
        """
        if self._failed_write is not None:
            raise self._failed_write
        idempotent = batch.producer_id >= 0
        if idempotent:
            self.producers.check(batch)
        length, position, delta = batch.length, batch.position, batch.last_offset_delta
        size = LENGTH_PREFIX + length
        active = self._segments[-1]
        relative = self._next_offset + delta - active.base_offset
        filled = active.size + self._staged_bytes
        if filled and (filled + size > self.config.segment_bytes or relative > MAX_RELATIVE_OFFSET):
            try:
                self.commit()
            except OSError as error:
                self._failed_write = error
                raise
            self.roll()
        base = self._next_offset
        patch_placement(buffer, position, base, length, LEADER_EPOCH)
        self._staged.append(buffer[position : position + size])
        self._next_offset = base + delta + 1
        self._staged_batches.append((base, size, batch.max_timestamp))
        self._staged_bytes += size
        if idempotent:
            self._undo.append((batch.producer_id, self.producers.record(batch, base)))
        return base

    def stage_plain(self, buffer: memoryview, batches: Sequence[Plain]) -> int | None:
        """Stage batches one after the other, and tell the first one's offset.

        None, and nothing is staged, if something is in the way: `stage` says what, or clears it.
        """
        first = base = self._next_offset
        staged, notes, total = [], [], 0
        for start, stop, count, newest in batches:
            size = stop - start
            patch_placement(buffer, start, base, size - LENGTH_PREFIX, LEADER_EPOCH)
            staged.append(buffer[start:stop])
            notes.append((base, size, newest))
            base += count
            total += size
        active = self._segments[-1]
        if (
            self._failed_write is not None
            or active.size + self._staged_bytes + total > self.config.segment_bytes
            or base - 1 - active.base_offset > MAX_RELATIVE_OFFSET
        ):
            return None
        self._staged += staged
        self._staged_batches += notes
        self._staged_bytes += total
        self._next_offset = base
        return first

    def commit(self) -> None:
        """Write what is staged. On OSError nothing staged since the last commit has happened."""
        if self._failed_write is not None:
            lost, self._failed_write = self._failed_write, None
            raise lost
        if not self._staged:
            return
        active = self._segments[-1]
        try:
            active.append(self._staged, self._staged_batches, self._next_offset)
        except OSError:
            self._next_offset = self._written.offset
            for producer_id, before in reversed(self._undo):
                self.producers.restore(producer_id, before)
            raise
        else:
            self._written = LogPosition(self._next_offset, active.base_offset, active.size)
            self.appended_bytes += self._staged_bytes
        finally:
            self._staged.clear()
            self._staged_batches.clear()
            self._undo.clear()
            self._staged_bytes = 0

    def roll(self) -> None:
        """Seal the active segment and start the next; an empty one is left as it is."""
        active = self._segments[-1]
        if not active.size:
            return
        active.sync()
        self.mark_flushed(self._written)
        path = segment_path(self.folder, self._next_offset)
        replace_file(path.with_suffix(".producers"), self.producers.dump())
        new = LogSegment(path)
        try:
            active.seal()
        except OSError:
            new.close()
            new.remove_files()
            active.index_path.unlink(missing_ok=True)  # it would say that the log was closed
            raise
        self._replace((*self._segments, new))
        self._written = self._flushed = LogPosition(self._next_offset, new.base_offset, 0)

    def roll_due(self, now_ms: int) -> bool:
        """Whether the active segment is old enough to be sealed."""
        active, limit = self._segments[-1], self.config.segment_ms
        compaction = self.config.compaction
        if compaction is not None and compaction.max_lag_ms >= 0:
            limit = min(limit, compaction.max_lag_ms)
        return active.size > 0 and now_ms - active.created_ms() > limit

    # -- flush -------------------------------------------------------------------------------

    def sync(self) -> LogPosition:
        """Put what is written on disk; for `mark_flushed`. May run in another thread."""
        point = self._written  # read before the segment: rolling syncs the old one itself
        self._segments[-1].sync()
        return point

    def mark_flushed(self, point: LogPosition) -> None:
        """Take note of a finished `sync`."""
        if point.offset > self._flushed.offset:
            self._flushed = point

    # -- read --------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> FileSlice:
        """Bytes from the batch that holds `offset` on, at most `max_bytes` of one segment.

        With `at_least_one` the first batch comes whole, however large. The piece may end with a
        few bytes of another batch, which readers drop: what costs more to send is left out.
        OffsetOutOfRangeError below the start or above the visible end.
        """
        high_watermark = self._high_watermark
        if not self.log_start_offset <= offset <= high_watermark.offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not in {self.log_start_offset}..{high_watermark.offset}"
            )
        segments = self._segments
        at = bisect_right(self._base_offsets, offset) - 1
        while offset < high_watermark.offset and at < len(segments):
            segment = segments[at]
            limit = (
                high_watermark.position
                if segment.base_offset == high_watermark.base
                else segment.size
            )
            batch = segment.find_batch(offset)
            if batch is not None and batch.position < limit:
                first_end = batch.position + batch.size
                end = min(limit, batch.position + max_bytes)
                if end < first_end:
                    end = first_end if at_least_one else batch.position
                elif end < limit:
                    end = max(first_end, segment.batch_boundary_before(end))
                return FileSlice(segment.file, batch.position, end - batch.position)
            at += 1
        return FileSlice(segments[-1].file, 0, 0)

    def offset_at_time(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first visible record at or after `timestamp`.

        In a batch whose records do not decode, the batch's first offset stands for it.
        """
        start = self.log_start_offset
        for segment in self._segments:
            batch = segment.find_batch_by_time(timestamp, start)
            if batch is not None and batch.base_offset < start:
                found = self._among(segment, batch, timestamp)
                if found is not None:
                    return found
                # those that are late enough were deleted: what follows may have some
                batch = segment.find_batch_by_time(timestamp, batch.last_offset + 1)
            if batch is None:
                continue
            if batch.base_offset >= self.high_watermark:
                return None
            # if there is none, the batch's own header answers, as good as it can
            header = batch.base_offset, batch.base_timestamp
            return self._among(segment, batch, timestamp) or header
        return None

    def latest_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the visible record with the largest timestamp."""
        start, high_watermark = self.log_start_offset, self.high_watermark
        latest = max(
            segment.max_timestamp_between(start, high_watermark) for segment in self._segments
        )
        return None if latest == NO_TIMESTAMP else self.offset_at_time(latest)

    def _among(self, segment: LogSegment, batch: Batch, timestamp: int) -> tuple[int, int] | None:
        """The first such record of a batch, if it has one that can be read."""
        data = segment.read(batch)
        placed = batch._replace(position=0)
        try:
            for record in iter_records(data, placed, limit=_TIME_SEARCH_LIMIT_BYTES):
                # what a record says of itself is the producer's word: the header bounds it
                placed_well = self.log_start_offset <= record.offset <= batch.last_offset
                if placed_well and timestamp <= record.timestamp <= batch.max_timestamp:
                    return record.offset, record.timestamp
        except InvalidBatchError:
            pass
        return None

    # -- removal -----------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[LogSegment]:
        """Drop the oldest segments that time, size or the start say; none while they are held.

        The caller removes their files. FlushFailedError or OSError if the newest cannot be sealed.
        """
        if self.compacting:
            return []
        config, segments = self.config, self._segments
        keep_from = 0
        size = self.size
        for segment in segments:
            old = (
                config.retention_ms >= 0
                and segment.size
                and now_ms - segment.last_write_ms() > config.retention_ms
            )
            last = segment is segments[-1]
            large = not last and 0 <= config.retention_bytes < size - segment.size
            deleted = not last and segment.next_offset <= self.log_start_offset
            if not (old or large or deleted):
                break
            if last:
                self.roll()
            size -= segment.size
            keep_from += 1
        left = self._segments[-1]
        if 0 < keep_from == len(self._segments) - 1 and not left.folder_synced:
            left.sync()  # its name alone will tell where offsets go on
        return self._drop(keep_from)

    def delete_before(self, offset: int) -> list[LogSegment]:
        """Move the start to `offset`; returns the segments that fall away wholly.

        While segments are held none does; `expire` drops them later.
        """
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not in {self.log_start_offset}..{self.high_watermark}"
            )
        if offset > self.log_start_offset:
            replace_file(self.folder / START_FILE, b"%d\n" % offset)
            self.log_start_offset = offset
        return self._drop(0 if self.compacting else bisect_right(self._base_offsets, offset) - 1)

    def swap(
        self, old: Sequence[LogSegment], new: LogSegment | None, compaction_state: CompactionState
    ) -> None:
        """Take over what compaction did on disk: `new` stands where the `old` segments were.

        The old ones close when their last reader lets go.
        """
        self.compaction_state = compaction_state
        if new is not None:
            for segment in old:
                segment.file.close_when_unused()
            at = self._segments.index(old[0])
            self._replace((*self._segments[:at], new, *self._segments[at + len(old) :]))

    def _drop(self, count: int) -> list[LogSegment]:
        dropped = list(self._segments[:count])
        if dropped:
            self._replace(self._segments[count:])
            self.log_start_offset = max(self.log_start_offset, self._base_offsets[0])
        return dropped

    def _replace(self, segments: tuple[LogSegment, ...]) -> None:
        self._segments = segments
        self._base_offsets = tuple(segment.base_offset for segment in segments)

    def close(self) -> None:
        """Flush, save what makes the next start short, and close the files."""
        try:
            self.mark_flushed(self.sync())
            self._segments[-1].save_index()
        finally:
            self.abandon()

    def close_when_unused(self) -> None:
        """The files are about to be deleted: close them without keeping the loop waiting."""
        for segment in self._segments:
            segment.file.close_when_unused()

    def abandon(self) -> None:
        """Close the files without flushing: the log is being deleted, or has failed."""
        for segment in self._segments:
            segment.close()
