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

from headworks._atomic_file import replace_file
from headworks._broker.log.aborted_index import AbortedTransaction
from headworks._broker.log.compaction_state import CompactionState
from headworks._broker.log.config import LogConfig
from headworks._broker.log.producer_state import ProducerState, ProducerStates, note_marker
from headworks._broker.log.recovery_point import LogPosition, RecoveryPoint
from headworks._broker.log.retention import removable
from headworks._broker.log.segment import LogSegment, SegmentLostError, segment_path
from headworks._broker.log.slices import OffsetOutOfRangeError, aborted_between, find_slice
from headworks._broker.log.start_offset import save_start
from headworks._broker.log.time_search import latest_timestamp, offset_at_time
from headworks._kafka.records.batch import (
    LENGTH_PREFIX,
    TRANSACTIONAL,
    Batch,
    Buffer,
    PlainRun,
    check_batch,
    patch_placement,
)
from headworks._kafka.records.control import commits
from headworks._kafka.records.file_slice import FileSlice

LEADER_EPOCH = 0  # of every batch: a partition never moves to another broker
MAX_RELATIVE_OFFSET = (1 << 31) - 1  # of a record, to the base offset of its segment


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
        recovery_point: RecoveryPoint,
    ) -> None:
        self.folder = folder  # holds the segments and nothing of other partitions
        self.config = config  # replaced when the configs of the topic change
        self.log_start_offset = log_start_offset  # the first offset that consumers may read
        self.producers = producers  # the last batches of each idempotent producer
        self.compaction_state = compaction_state  # which segments were compacted
        self.compacting = False  # while the compactor reads sealed segments, none is removed
        self.appended_bytes = 0  # written since the log was opened
        self._segments = segments  # oldest first; the last, active one is written
        self._base_offsets: tuple[int, ...] = ()  # of the segments, to bisect
        self._aborting: tuple[LogSegment, ...] = ()  # the segments with aborted transactions
        self._replace_segments(segments)
        end = LogPosition(segments[-1].next_offset, segments[-1].base_offset, segments[-1].size)
        self._log_end = end  # after the last written record
        self._flushed = end  # after the last record that is on disk
        self._recovery_point = recovery_point  # the file that keeps `_flushed`
        self._next_offset = end.offset  # of the next staged batch
        self._staged: list[Buffer] = []  # the bytes of each staged batch
        self._staged_batches: list[tuple[int, int, int]] = []  # base offset, size, max timestamp
        self._staged_bytes = 0  # of all staged batches
        self._undo: list[tuple[int, ProducerState | None]] = []  # producers as they were before
        # of staged batches; the next `commit` raises it
        self._failed_write: OSError | SegmentLostError | None = None

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
        return (self._log_end if self.config.show_unflushed else self._flushed).offset

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which every transaction has ended; the high watermark if all have."""
        if self.producers.transactions.none:
            return self.high_watermark
        return max(self._stable_end.offset, self.log_start_offset)

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

    @property
    def _stable_end(self) -> LogPosition:
        end = self._readable_end
        first = self.producers.transactions.first_unstable(end.offset)
        return end if first is None else min(first, end)

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
            except (OSError, SegmentLostError) as error:
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
            if batch.attributes & TRANSACTIONAL:
                active = self._segments[-1]
                at = LogPosition(base, active.base_offset, active.size + self._staged_bytes - size)
                self.producers.transactions.staged.append((batch.producer_id, at))
        return base

    def stage_plain(self, buffer: memoryview, run: PlainRun) -> list[int] | None:
        """Stage a run of plain batches, and return their base offsets.

        Stages nothing and returns None if the run does not fit or is not what its producer sends
        next, or an earlier write failed. The caller then stages the batches one by one.
        """
        batches, producer_id, _, _ = run
        continues = producer_id < 0 or self.producers.continues(run)
        if self._failed_write is not None or not continues:
            return None
        base, placed, staged, noted, total = self._next_offset, [], [], [], 0
        for start, stop, count, max_timestamp in batches:
            size = stop - start
            patch_placement(buffer, start, base, size - LENGTH_PREFIX, LEADER_EPOCH)
            placed.append(base)
            staged.append(buffer[start:stop])
            noted.append((base, size, max_timestamp))
            base += count
            total += size
        active = self._segments[-1]
        is_far = base - 1 - active.base_offset > MAX_RELATIVE_OFFSET
        if is_far or active.size + self._staged_bytes + total > self.config.segment_bytes:
            return None
        if producer_id >= 0:
            self._undo.append((producer_id, self.producers.extend(run, placed[0])))
        self._staged += staged
        self._staged_batches += noted
        self._staged_bytes += total
        self._next_offset = base
        return placed

    def commit(self) -> None:
        """Write all staged batches; on OSError or SegmentLostError none of them was appended."""
        if self._failed_write is not None:
            failed, self._failed_write = self._failed_write, None
            raise failed
        if not self._staged:
            return
        active = self._segments[-1]
        try:
            active.append(self._staged, self._staged_batches, self._next_offset)
        except (OSError, SegmentLostError):
            self._next_offset = self._log_end.offset
            for producer_id, before in reversed(self._undo):
                self.producers.restore(producer_id, before)
            self.producers.transactions.staged.clear()
            raise
        else:
            self._log_end = LogPosition(self._next_offset, active.base_offset, active.size)
            self.appended_bytes += self._staged_bytes
            if self.producers.transactions.staged:
                self.producers.transactions.begin_staged()
        finally:
            self._staged.clear()
            self._staged_batches.clear()
            self._undo.clear()
            self._staged_bytes = 0

    def append_marker(self, marker: bytearray) -> int:
        """Write the marker that ends a transaction here, and return its offset.

        Raises what `stage` and `commit` raise; the transaction is then still open.
        """
        batch = check_batch(marker)
        base = self.stage(memoryview(marker), batch._replace(producer_id=-1))
        self.commit()
        placed, active = batch._replace(base_offset=base), self._segments[-1]
        commit = commits(bytes(marker), batch)
        note_marker(self.producers, active, placed, commit, exposed=self.high_watermark)
        if len(active.aborted):
            self._replace_segments(self._segments)
        return base

    def roll(self) -> None:
        """Flush and seal the active segment, and start a new one; do nothing if it is empty."""
        active = self._segments[-1]
        if not active.size:
            return
        active.sync()
        self.mark_flushed(self._log_end)
        path = segment_path(self.folder, self._next_offset)
        replace_file(path.with_suffix(".producers"), self.producers.dump(active))
        new = LogSegment(path)
        try:
            active.seal()
        except OSError:
            new.close()
            new.remove_files()
            raise
        self._replace_segments((*self._segments, new))
        self._log_end = self._flushed = LogPosition(self._next_offset, new.base_offset, 0)

    def roll_due(self, now_ms: int) -> bool:
        """Return whether the active segment is older than the configs allow."""
        active = self._segments[-1]
        return active.size > 0 and now_ms - active.created_ms() > self.config.roll_ms

    # -- flush -------------------------------------------------------------------------------

    def sync(self) -> LogPosition:
        """Flush, and return what `mark_flushed` needs. May run in another thread."""
        end = self._log_end  # read before the segment: a roll flushes the old one itself
        self._segments[-1].sync()
        self._recovery_point.advance(end)
        return end

    def mark_flushed(self, end: LogPosition) -> None:
        """Advance the flushed offset after a `sync`."""
        if end.offset > self._flushed.offset:
            self._flushed = end

    # -- read --------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> FileSlice:
        """Return bytes of one segment, from the batch that holds `offset`, at most `max_bytes`.

        With `at_least_one` the first batch is whole, however large it is. The slice may end within
        a later batch, which a client ignores. The slice is empty from the high watermark to the log
        end offset: a producer may have been told these offsets. Raises OffsetOutOfRangeError below
        the log start offset and above the log end offset.
        """
        self._check_range(offset, self._log_end.offset)
        end = self._log_end if self.config.show_unflushed else self._flushed
        segments, bases = self._segments, self._base_offsets
        return find_slice(segments, bases, offset, max_bytes, end, at_least_one=at_least_one)[1]

    def read_committed(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True
    ) -> tuple[FileSlice, tuple[AbortedTransaction, ...]]:
        """Return what `read` returns, up to the last stable offset, and what was aborted in it."""
        if self.producers.transactions.none and not self._aborting:
            return self.read(offset, max_bytes, at_least_one=at_least_one), ()
        self._check_range(offset, self._log_end.offset)
        end, segments, bases = self._stable_end, self._segments, self._base_offsets
        segment, found = find_slice(
            segments, bases, offset, max_bytes, end, at_least_one=at_least_one
        )
        if not found.size or not self._aborting:
            return found, ()
        stop = segment.offset_from(found.position + found.size)
        return found, aborted_between(self._aborting, offset, min(stop, end.offset))

    def offset_at_time(self, timestamp: int, *, committed: bool = False) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first readable record at or after `timestamp`."""
        end = self.last_stable_offset if committed else self.high_watermark
        return offset_at_time(self._segments, self.log_start_offset, end, timestamp)

    def latest_timestamp(self, *, committed: bool = False) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the readable record with the largest timestamp."""
        end = self.last_stable_offset if committed else self.high_watermark
        return latest_timestamp(self._segments, self.log_start_offset, end)

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
        segments = self._segments
        dropped = removable(segments, self.config, self.log_start_offset, now_ms)
        if dropped == len(segments):
            self.roll()
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
            if offset > self._flushed.offset:
                self._segments[-1].sync()  # recovery refuses a log that ends before its start
            save_start(self.folder, offset)
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
            self._recovery_point.settle(self._flushed, self._base_offsets[count])
            self._replace_segments(self._segments[count:])
            self.log_start_offset = max(self.log_start_offset, self._base_offsets[0])
        return dropped

    def _replace_segments(self, segments: tuple[LogSegment, ...]) -> None:
        self._segments = segments
        self._base_offsets = tuple(segment.base_offset for segment in segments)
        self._aborting = tuple(segment for segment in segments if len(segment.aborted))

    def close(self) -> None:
        """Flush, put the recovery point at the end of the log, and close the files."""
        try:
            self.mark_flushed(self.sync())
            self._recovery_point.settle(self._flushed, self._base_offsets[0])
        finally:
            self.abandon()

    def close_when_unused(self) -> None:
        """Close each file after its last reader, because the files are about to be deleted."""
        for segment in self._segments:
            segment.file.close_when_unused()

    def abandon(self) -> None:
        """Close the files without a flush."""
        self._recovery_point.close()
        for segment in self._segments:
            segment.close()
