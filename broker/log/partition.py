"""The log of one partition: a row of segments, appended at one end and removed at the other.

Rules:

- One thread, the event loop, appends, rolls, and removes. The flusher thread only calls `sync`.
- A reader takes no lock. It uses the tuple of segments, which is replaced and never changed.
- The log end offset follows the last written record, the flushed offset the last one on disk.
  Consumers read up to the high watermark: the flushed offset, or the log end offset if the config
  exposes unflushed records. None of the three ever goes back.
- An append has two steps: `stage` assigns offsets, and `commit` writes all staged batches at once.
  If the write fails, offsets and producer states are again as they were before.
- Retention uses the time of the last write to a segment. Record timestamps are event times, and
  events of last year must survive being loaded today.
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

LEADER_EPOCH = 0  # of every batch: a partition never moves to another broker
MAX_RELATIVE_OFFSET = (1 << 31) - 1  # of a record, to the base offset of its segment
START_FILE = "start-offset"
_TIME_SEARCH_LIMIT_BYTES = 64 << 20  # of one decompressed batch that is searched for a timestamp


class OffsetOutOfRangeError(RefusedError):
    """The log does not hold this offset: it was removed, or is not written yet."""


class LogPosition(NamedTuple):
    """An offset and where its record starts."""

    offset: int
    segment_base_offset: int
    position: int  # byte in the file of that segment


class PartitionLog:
    """The log of one partition. `broker.log.open_log` opens it."""

    def __init__(
        self,
        folder: Path,
        segments: tuple[LogSegment, ...],
        producers: ProducerStates,
        config: LogConfig,
        log_start_offset: int,
        compaction_state: CompactionState,
    ) -> None:
        self.folder = folder  # holds the segments and nothing of other partitions
        self.config = config  # replaced when the configs of the topic change
        self.log_start_offset = log_start_offset  # the first offset that consumers may read
        self.producers = producers  # the last batches of each idempotent producer
        self.compaction_state = compaction_state  # which segments were compacted
        self.compacting = False  # while the compactor reads sealed segments, none is removed
        self.appended_bytes = 0  # written since the log was opened
        self._segments = segments  # oldest first; the last, active one is written
        self._base_offsets = tuple(segment.base_offset for segment in segments)  # to bisect
        end = LogPosition(segments[-1].next_offset, segments[-1].base_offset, segments[-1].size)
        self._log_end = end  # after the last written record
        self._flushed = end  # after the last record that is on disk
        self._next_offset = end.offset  # of the next staged batch
        self._staged: list[Buffer] = []  # the bytes of each staged batch
        self._staged_batches: list[tuple[int, int, int]] = []  # base offset, size, max timestamp
        self._staged_bytes = 0  # of all staged batches
        self._undo: list[tuple[int, ProducerState | None]] = []  # producers as they were before
        self._failed_write: OSError | None = None  # of staged batches; the next `commit` raises it

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """All segments, oldest first; the last one is active."""
        return self._segments

    @property
    def log_end_offset(self) -> int:
        """The offset after the last written record."""
        return self._log_end.offset

    @property
    def flushed_offset(self) -> int:
        """The offset after the last record that is on disk."""
        return self._flushed.offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that consumers may read."""
        return self._readable_end.offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def nearly_full(self) -> bool:
        """Whether the active segment is within a sixteenth of its maximum size."""
        return self._segments[-1].size > self.config.segment_bytes - self.config.segment_bytes // 16

    @property
    def _readable_end(self) -> LogPosition:
        return self._log_end if self.config.show_unflushed else self._flushed

    # -- append ------------------------------------------------------------------------------

    def stage(self, buffer: memoryview, batch: Batch) -> int:
        """Assign offsets to a checked batch in `buffer`, and return its base offset.

        `commit` writes it. Raises what `ProducerStates.check` raises, and OSError or
        FlushFailedError if the active segment is full and a new one cannot be started.
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
        self._staged_batches.append((base, size, batch.max_timestamp))
        self._staged_bytes += size
        self._next_offset = base + delta + 1
        if idempotent:
            self._undo.append((batch.producer_id, self.producers.update(batch, base)))
        return base

    def stage_plain(self, buffer: memoryview, batches: Sequence[Plain]) -> int | None:
        """Stage a run of plain batches, and return the base offset of the first.

        Stages nothing and returns None if the run does not fit, or an earlier write failed. The
        caller then stages the batches one by one.
        """
        first = base = self._next_offset
        staged, noted, total = [], [], 0
        for start, stop, count, max_timestamp in batches:
            size = stop - start
            patch_placement(buffer, start, base, size - LENGTH_PREFIX, LEADER_EPOCH)
            staged.append(buffer[start:stop])
            noted.append((base, size, max_timestamp))
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
        self._staged_batches += noted
        self._staged_bytes += total
        self._next_offset = base
        return first

    def commit(self) -> None:
        """Write all staged batches; on OSError none of them was appended."""
        if self._failed_write is not None:
            failed, self._failed_write = self._failed_write, None
            raise failed
        if not self._staged:
            return
        active = self._segments[-1]
        try:
            active.append(self._staged, self._staged_batches, self._next_offset)
        except OSError:
            self._next_offset = self._log_end.offset
            for producer_id, before in reversed(self._undo):
                self.producers.restore(producer_id, before)
            raise
        else:
            self._log_end = LogPosition(self._next_offset, active.base_offset, active.size)
            self.appended_bytes += self._staged_bytes
        finally:
            self._staged.clear()
            self._staged_batches.clear()
            self._undo.clear()
            self._staged_bytes = 0

    def roll(self) -> None:
        """Flush and seal the active segment, and start a new one; do nothing if it is empty."""
        active = self._segments[-1]
        if not active.size:
            return
        active.sync()
        self.mark_flushed(self._log_end)
        path = segment_path(self.folder, self._next_offset)
        replace_file(path.with_suffix(".producers"), self.producers.dump())
        new = LogSegment(path)
        try:
            active.seal()
        except OSError:
            new.close()
            new.remove_files()
            active.index_path.unlink(missing_ok=True)  # on the active segment it means: closed
            raise
        self._replace_segments((*self._segments, new))
        self._log_end = self._flushed = LogPosition(self._next_offset, new.base_offset, 0)

    def roll_due(self, now_ms: int) -> bool:
        """Return whether the active segment is older than the configs allow."""
        active, limit = self._segments[-1], self.config.segment_ms
        compaction = self.config.compaction
        if compaction is not None and compaction.max_lag_ms >= 0:
            limit = min(limit, compaction.max_lag_ms)
        return active.size > 0 and now_ms - active.created_ms() > limit

    # -- flush -------------------------------------------------------------------------------

    def sync(self) -> LogPosition:
        """Flush, and return what `mark_flushed` needs. May run in another thread."""
        end = self._log_end  # read before the segment: a roll flushes the old one itself
        self._segments[-1].sync()
        return end

    def mark_flushed(self, end: LogPosition) -> None:
        """Advance the flushed offset after a `sync`."""
        if end.offset > self._flushed.offset:
            self._flushed = end

    # -- read --------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> FileSlice:
        """Return bytes of one segment, from the batch that holds `offset`, at most `max_bytes`.

        With `at_least_one` the first batch is whole, however large it is. The slice may end within
        a later batch, which a client ignores. Raises OffsetOutOfRangeError below the log start
        offset and above the high watermark.
        """
        end = self._readable_end
        self._check_range(offset, end.offset)
        segments = self._segments
        at = bisect_right(self._base_offsets, offset) - 1
        while offset < end.offset and at < len(segments):
            segment = segments[at]
            last = segment.base_offset == end.segment_base_offset
            limit = end.position if last else segment.size
            batch = segment.find_batch(offset)
            if batch is not None and batch.position < limit:
                batch_end = batch.position + batch.size
                stop = min(limit, batch.position + max_bytes)
                if stop < batch_end:
                    stop = batch_end if at_least_one else batch.position
                elif stop < limit:
                    stop = max(batch_end, segment.batch_boundary_before(stop))
                return FileSlice(segment.file, batch.position, stop - batch.position)
            at += 1
        return FileSlice(segments[-1].file, 0, 0)

    def offset_at_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first readable record at or after `timestamp`.

        The header of a batch stands for its records if they do not decode.
        """
        start = self.log_start_offset
        for segment in self._segments:
            batch = segment.find_batch_by_time(timestamp, start)
            if batch is not None and batch.base_offset < start:
                found = self._find_record(segment, batch, timestamp)
                if found is not None:
                    return found
                # its matching records lie before the log start offset: search the batches after it
                batch = segment.find_batch_by_time(timestamp, batch.last_offset + 1)
            if batch is None:
                continue
            if batch.base_offset >= self.high_watermark:
                return None
            header = batch.base_offset, batch.base_timestamp
            return self._find_record(segment, batch, timestamp) or header
        return None

    def latest_timestamp(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the readable record with the largest timestamp."""
        start, end = self.log_start_offset, self.high_watermark
        latest = max(segment.max_timestamp_between(start, end) for segment in self._segments)
        return None if latest == NO_TIMESTAMP else self.offset_at_time(latest)

    def _find_record(
        self, segment: LogSegment, batch: Batch, timestamp: int
    ) -> tuple[int, int] | None:
        """Return the first matching record of a batch, None if there is none or it is damaged."""
        data, header = segment.read(batch), batch._replace(position=0)
        try:
            for record in iter_records(data, header, limit=_TIME_SEARCH_LIMIT_BYTES):
                # the producer wrote the record's own fields: trust them within the header's bounds
                in_batch = self.log_start_offset <= record.offset <= batch.last_offset
                if in_batch and timestamp <= record.timestamp <= batch.max_timestamp:
                    return record.offset, record.timestamp
        except InvalidBatchError:
            pass
        return None

    def _check_range(self, offset: int, end: int) -> None:
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(f"offset {offset} is not in {self.log_start_offset}..{end}")

    # -- remove ------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[LogSegment]:
        """Drop the oldest segments that retention allows, none while compacting; return them.

        The caller removes their files. Raises FlushFailedError or OSError if the active segment is
        among them and cannot be sealed.
        """
        if self.compacting:
            return []
        config, segments = self.config, self._segments
        dropped, size = 0, self.size
        for segment in segments:
            active = segment is segments[-1]
            age_ms = now_ms - segment.last_write_ms()
            old = segment.size and 0 <= config.retention_ms < age_ms
            large = not active and 0 <= config.retention_bytes < size - segment.size
            deleted = not active and segment.next_offset <= self.log_start_offset
            if not (old or large or deleted):
                break
            if active:
                self.roll()
            size -= segment.size
            dropped += 1
        newest = self._segments[-1]
        if 0 < dropped == len(self._segments) - 1 and not newest.folder_synced:
            newest.sync()  # from now on its name alone says where offsets continue
        return self._drop(dropped)

    def delete_before(self, offset: int) -> list[LogSegment]:
        """Move the log start offset to `offset`; drop the segments below it, and return them.

        While compacting, no segment is dropped; a later `expire` drops them.
        """
        self._check_range(offset, self.high_watermark)
        if offset > self.log_start_offset:
            replace_file(self.folder / START_FILE, b"%d\n" % offset)
            self.log_start_offset = offset
        return self._drop(0 if self.compacting else bisect_right(self._base_offsets, offset) - 1)

    def swap(
        self, old: Sequence[LogSegment], new: LogSegment | None, state: CompactionState
    ) -> None:
        """Replace `old` segments by the compacted one, as compaction has done on disk."""
        self.compaction_state = state
        if new is not None:
            for segment in old:
                segment.file.close_when_unused()
            at = self._segments.index(old[0])
            self._replace_segments((*self._segments[:at], new, *self._segments[at + len(old) :]))

    def _drop(self, count: int) -> list[LogSegment]:
        dropped = list(self._segments[:count])
        if dropped:
            self._replace_segments(self._segments[count:])
            self.log_start_offset = max(self.log_start_offset, self._base_offsets[0])
        return dropped

    def _replace_segments(self, segments: tuple[LogSegment, ...]) -> None:
        self._segments = segments
        self._base_offsets = tuple(segment.base_offset for segment in segments)

    def close(self) -> None:
        """Flush, write the index of the active segment for a quick start, and close the files."""
        try:
            self.mark_flushed(self.sync())
            self._segments[-1].save_index()
        finally:
            self.abandon()

    def close_when_unused(self) -> None:
        """Close each file after its last reader, because the files are about to be deleted."""
        for segment in self._segments:
            segment.file.close_when_unused()

    def abandon(self) -> None:
        """Close the files without a flush."""
        for segment in self._segments:
            segment.close()
