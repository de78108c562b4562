"""A partition that this broker serves: its log, its flushes, and the requests that wait for it.

Rules:

- A batch with acks=all is acknowledged after the flush that covers it, with acks=1 after the write.
- A failed flush stops the partition. The kernel may have dropped the pages, so a later flush could
  succeed without them. Producers get a storage error until the broker restarts.
- A waiting reader is called back when the high watermark advances, until it calls `unwatch`.
- A flush blocks appends to the same file, so it happens only as often as needed. That is at once
  for acks=all, within milliseconds while a reader waits or someone asks where the log ends, else by
  the flush policy. One flush serves all who ask during these milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headworks._broker.log import FlushFailedError, PartitionLog
from headworks._broker.log.segment import LogSegment, salvage_fix
from headworks._broker.log.slice_check import damaged_batches_in
from headworks._broker.repeated_failure import RepeatedFailure
from headworks._broker.topics.config import TopicConfig
from headworks._broker.topics.flusher import Flusher
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.records.batch import Batch, PlainRun
from headworks._kafka.records.file_slice import FileSlice, OpenFile
from headworks.errors import CorruptError, RefusedError

_log = logging.getLogger(__name__)
_TAIL_FLUSH_SECONDS = 0.002  # the longest that a reader at the end waits for a flush
_LOG_INTERVAL_SECONDS = 60.0
_MAX_DAMAGE_NOTES = 100


class StorageFailureError(RefusedError):
    """The partition cannot be written, because the disk is full or has failed."""


class HostedPartition:
    """One partition of a topic, served by this broker."""

    def __init__(
        self,
        topic: str,
        index: int,
        log: PartitionLog,
        config: TopicConfig,
        flusher: Flusher,
        *,
        internal: bool = False,
    ) -> None:
        self.topic = topic  # its name
        self.index = index  # the number of the partition in its topic
        self.log = log  # only the event loop appends to it
        self.config = config  # resolved, of the topic
        self.internal = internal  # whether only the broker writes it
        self.failure: str | None = None  # why it no longer takes batches
        self.failure_code = ErrorCode.KAFKA_STORAGE_ERROR  # that its waiting requests get
        self.damage: dict[str, None] = {}  # that readers and the scrubber met, in order
        self.damaged_batches: list[tuple[OpenFile, int]] = []  # of the damage that has a place
        self._next_rejection_log = 0.0  # when a rejected batch is logged again
        # Logs a failed write once, and its end.
        self._write_failures = RepeatedFailure(_log, f"{topic}-{index}: cannot be written now")
        self._flusher = flusher  # the thread that syncs the log
        self._loop = asyncio.get_running_loop()  # takes the results of the flusher
        self._timer: asyncio.TimerHandle | None = None  # of the next flush by time
        self._requested_offset = 0  # a flush up to this offset is requested
        # The offset that each `acks=all` request waits for, and its callback, by offset.
        self._flush_waiters: deque[tuple[int, Callable[[str | None], None]]] = deque()
        # Callbacks of fetches that wait for more data; a dict keeps their order.
        self._waiting_readers: dict[Callable[[], None], None] = {}

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def writable(self) -> bool:
        """Whether it takes batches, by the result of the last append."""
        return self.failure is None and not self._write_failures.ongoing

    @property
    def about(self) -> dict[str, object]:
        """The fields of its log records."""
        return {"topic": self.topic, "partition": self.index, "offset": self.log.log_end_offset}

    def configure(self, config: TopicConfig) -> None:
        """Apply changed configs."""
        self.config = config
        self.log.config = config.log
        if self._timer is not None:
            self._flush_later()  # sooner, if the new config says so

    def stage(self, buffer: memoryview, batch: Batch) -> int:
        """See `PartitionLog.stage`; StorageFailureError if the partition cannot be written."""
        if self.failure is not None:
            raise StorageFailureError(self.failure)
        try:
            return self.log.stage(buffer, batch)
        except FlushFailedError as error:
            self._flush_failed(error)
            raise StorageFailureError(str(error)) from error
        except OSError as error:
            raise self._write_failed(error) from error

    def stage_plain(self, buffer: memoryview, run: PlainRun) -> list[int] | None:
        """See `PartitionLog.stage_plain`."""
        return None if self.failure is not None else self.log.stage_plain(buffer, run)

    def append_marker(self, marker: bytearray) -> None:
        """See `PartitionLog.append_marker`; the marker is flushed at once.

        Raises StorageFailureError if the partition cannot be written.
        """
        if self.failure is not None:
            raise StorageFailureError(self.failure)
        try:
            self.log.append_marker(marker)
        except FlushFailedError as error:
            self._flush_failed(error)
            raise StorageFailureError(str(error)) from error
        except OSError as error:
            raise self._write_failed(error) from error
        self.commit(urgent=True)

    def commit(self, *, urgent: bool) -> None:
        """Write the staged batches, and flush them: at once if `urgent` (a request waits)."""
        failing = self._write_failures.ongoing
        before = self.log.log_end_offset if failing else 0
        try:
            self.log.commit()
        except FlushFailedError as error:  # the file of the segment is lost
            self._flush_failed(error)
            raise StorageFailureError(str(error)) from error
        except OSError as error:
            raise self._write_failed(error) from error
        end = self.log.log_end_offset
        if failing and end > before:
            self._write_failures.recovered(self.about)
        if urgent or end - self.log.flushed_offset >= self.config.flush_messages:
            self.flush()
        elif self.log.nearly_full:
            self.flush()  # in the thread, so that a roll leaves the loop little to flush
        elif end > self._requested_offset and (self._timer is None or self._waiting_readers):
            self._flush_later()  # else the flush that is due comes first
        if self.config.log.show_unflushed:
            self._wake_readers()

    def _flush_later(self, *, awaited: bool = False) -> None:
        """Schedule a flush: soon if it is awaited or a reader waits, else by the policy."""
        seconds = self.config.flush_ms / 1000
        if awaited or (self._waiting_readers and not self.config.log.show_unflushed):
            seconds = min(seconds, _TAIL_FLUSH_SECONDS)
        due = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self.flush)

    def flush(self) -> None:
        """Request a flush of all written batches, unless it is requested already."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        end = self.log.log_end_offset
        if end > self._requested_offset:
            self._requested_offset = end
            self._flusher.request(self.log, self._flushed)

    def roll_when_due(self, now_ms: int) -> None:
        """Roll the active segment if it is old enough, after a flush in the thread."""
        if self.failure is None and self.log.roll_due(now_ms):
            self.flush()
            self.when_flushed(
                self.log.log_end_offset, lambda error: None if error else self._roll(now_ms)
            )

    def expire(self, now_ms: int) -> list[LogSegment]:
        """See `PartitionLog.expire`; a stopped partition removes nothing. Raises OSError."""
        if self.failure is not None:
            return []
        try:
            return self.log.expire(now_ms)
        except FlushFailedError as error:
            self._flush_failed(error)
            return []

    def _roll(self, now_ms: int) -> None:
        try:
            if self.log.roll_due(now_ms):
                self.log.roll()
        except FlushFailedError as error:
            self._flush_failed(error)
        except OSError as error:
            self._write_failures.failed(error, self.about)

    def when_flushed(self, offset: int, callback: Callable[[str | None], None]) -> None:
        """Call back with None when everything before `offset` is on disk, or with an error."""
        if offset <= self.log.flushed_offset:
            callback(None)
        elif self.failure is not None:
            callback(self.failure)
        else:
            self._flush_waiters.append((offset, callback))

    def expose_soon(self) -> None:
        """Flush soon if there are written batches that consumers cannot read yet."""
        exposed = max(self.log.high_watermark, self._requested_offset)
        if self.failure is None and self.log.log_end_offset > exposed:
            self._flush_later(awaited=True)

    async def wait_until_exposed(self) -> None:
        """Wait until consumers can read every batch that is written now.

        Raises StorageFailureError if these batches cannot be flushed.
        """
        if self.log.log_end_offset <= self.log.high_watermark:
            return
        self.expose_soon()
        flushed: asyncio.Future[str | None] = self._loop.create_future()
        self.when_flushed(
            self.log.log_end_offset,
            lambda error: None if flushed.done() else flushed.set_result(error),
        )
        error = await flushed
        if error is not None:
            raise StorageFailureError(error)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back whenever there is more to read, until `unwatch`."""
        self._waiting_readers[callback] = None
        if self._timer is not None:
            self._flush_later()

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Stop calling back."""
        self._waiting_readers.pop(callback, None)

    @property
    def readers(self) -> int:
        """The number of readers that wait for more."""
        return len(self._waiting_readers)

    def note_damage(self, what: str, batch: tuple[OpenFile, int] | None = None) -> None:
        """Note damage that a reader or the scrubber met, and log it once: clients retry forever.

        `batch` is the file and the position of a batch that is served no more.
        """
        if what not in self.damage and len(self.damage) < _MAX_DAMAGE_NOTES:
            self.damage[what] = None
            if batch is not None:
                self.damaged_batches.append(batch)
            _log.error("%s: %s", self, what, extra=self.about)

    def note_damaged_batch(self, path: Path, batch: tuple[OpenFile, int], reason: str) -> None:
        """Note a damaged batch, by its file and position; it is served no more."""
        what = f"{path}: damaged at byte {batch[1]}: {reason}"
        self.note_damage(str(CorruptError(what, fix=salvage_fix(self.log.folder))), batch)

    def path_of(self, file: OpenFile) -> Path:
        """Return the path of a segment's file; the folder, if the segment was removed."""
        found = (segment.path for segment in self.log.segments if segment.file is file)
        return next(found, self.log.folder)

    def verified(self, piece: FileSlice) -> FileSlice | None:
        """Check every CRC of a slice; return what precedes the first damaged batch, or None.

        Raises OSError.
        """
        for position, reason in damaged_batches_in(piece):
            path = self.path_of(piece.descriptor)
            self.note_damaged_batch(path, (piece.descriptor, position), reason)
            size = position - piece.position
            return piece._replace(size=size) if size else None
        return piece

    def before_damage(self, piece: FileSlice) -> FileSlice | None:
        """Return what precedes the first damaged batch of a slice; None if it begins with one."""
        positions = [at for file, at in self.damaged_batches if file is piece.descriptor]
        size = min((at - piece.position for at in positions if at >= piece.position), default=-1)
        if not 0 <= size < piece.size:
            return piece
        return piece._replace(size=size) if size else None

    def log_rejected_batch(self, error: RefusedError, peer: str) -> None:
        """Log why a batch is rejected, once a minute: not every client reports its errors."""
        self._log_refusal(f"rejected a batch of {peer}", str(error), peer)

    def log_dead_letters(self, count: int, topic: str, reason: str, peer: str) -> None:
        """Log why records became dead letters, once a minute: no client is told."""
        self._log_refusal(f"wrote {count} records of {peer} to {topic}", reason, peer)

    def _log_refusal(self, what: str, reason: str, peer: str) -> None:
        now = self._loop.time()
        if now < self._next_rejection_log:
            return
        self._next_rejection_log = now + _LOG_INTERVAL_SECONDS
        why = reason.removeprefix(f"{self}: ")
        about = self.about | {"peer": peer, "error": why}
        _log.warning("%s: %s: %s", self, what, why, extra=about)

    def stop(self, reason: str, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """Reject batches from now on, and answer all waiting requests."""
        self.failure, self.failure_code = reason, code
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._flush_waiters = self._flush_waiters, deque()
        for _, callback in waiting:
            callback(reason)
        self._wake_readers()

    def _flushed(self, point: Any, error: FlushFailedError | None) -> None:
        if self.failure is not None:
            return
        if error is not None:
            self._flush_failed(error)
            return
        self.log.mark_flushed(point)
        flushed = self.log.flushed_offset
        waiting = self._flush_waiters
        while waiting and waiting[0][0] <= flushed:
            waiting.popleft()[1](None)
        if waiting:
            self.flush()
        if not self.config.log.show_unflushed:
            self._wake_readers()

    def _flush_failed(self, error: FlushFailedError) -> None:
        _log.error("%s: no longer writable: %s", self, error, extra=self.about)
        self.stop(str(error))

    def _wake_readers(self) -> None:
        for callback in tuple(self._waiting_readers):
            callback()

    def _write_failed(self, error: OSError) -> StorageFailureError:
        self._write_failures.failed(error, self.about)
        return StorageFailureError(f"append failed: {error}")
