"""A served partition: its log, when it is flushed, and who waits for it.

Rules:

- A batch is acknowledged to acks=all only after the flush that covers it; acks=1 after the write.
- A flush that fails ends the partition: what the kernel dropped cannot be written again, so
  pretending otherwise would lose data. Writers get a storage error until the broker restarts.
- Waiting readers are called when the visible end moves, and must take themselves off.
- A flush makes appends to the same file wait, so it is not made more often than somebody needs it:
  at once for acks=all, soon while a reader waits for what comes next, else by the flush policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headworks._broker.log import FlushFailedError, PartitionLog
from headworks._broker.log.segment import LogSegment
from headworks._broker.repeated_failure import RepeatedFailure
from headworks._broker.topics.config import TopicConfig
from headworks._broker.topics.flusher import Flusher
from headworks._kafka.records.batch import Batch, Plain
from headworks.errors import CorruptError, RefusedError

__all__ = ["HostedPartition", "StorageFailureError"]

_log = logging.getLogger(__name__)
_TAIL_FLUSH_SECONDS = 0.002  # how long a reader at the end waits for a flush at most
_LOG_INTERVAL_SECONDS = 60.0


class StorageFailureError(RefusedError):
    """The partition cannot be written: the disk is full, or has failed."""


class HostedPartition:
    """One partition of a topic, served by this broker."""

    def __init__(
        self, topic: str, index: int, log: PartitionLog, config: TopicConfig, flusher: Flusher
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.config = config
        self.failure: str | None = None
        self._damage = ""
        self._silent_until = 0.0  # about batches that are refused
        self._write_failures = RepeatedFailure(_log, f"{topic}-{index}: cannot be written now")
        self._flusher = flusher
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._requested = 0  # flushes up to here are asked for
        self._until_flushed: deque[tuple[int, Callable[[str | None], None]]] = deque()
        self._readers: dict[Callable[[], None], None] = {}

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def writable(self) -> bool:
        """Whether it takes messages, as far as the last who tried has found."""
        return self.failure is None and not self._write_failures.ongoing

    @property
    def about(self) -> dict[str, object]:
        """What a log record says of it."""
        return {"topic": self.topic, "partition": self.index, "offset": self.log.log_end_offset}

    def configure(self, config: TopicConfig) -> None:
        """Take over changed configs."""
        self.config = config
        self.log.config = config.log

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
            raise self._refuse(error) from error

    def stage_plain(self, buffer: memoryview, batches: Sequence[Plain]) -> int | None:
        """See `PartitionLog.stage_plain`."""
        return None if self.failure is not None else self.log.stage_plain(buffer, batches)

    def commit(self, *, urgent: bool) -> None:
        """Write what is staged and see to its flush, at once if `urgent` (somebody waits)."""
        before = self.log.log_end_offset
        try:
            self.log.commit()
        except OSError as error:
            raise self._refuse(error) from error
        end = self.log.log_end_offset
        if self._write_failures.ongoing and end > before:
            self._write_failures.recovered(self.about)
        if urgent or end - self.log.flushed_offset >= self.config.flush_messages:
            self.flush()
        elif self.log.nearly_full:
            self.flush()  # in the thread, so that sealing it leaves little to flush to the loop
        elif end > self._requested:
            self._flush_later()
        if self.config.log.show_unflushed:
            self._wake_readers()

    def _flush_later(self) -> None:
        """See that what is written is flushed in time: soon if somebody waits to read it."""
        seconds = self.config.flush_ms / 1000
        if self._readers and not self.config.log.show_unflushed:
            seconds = min(seconds, _TAIL_FLUSH_SECONDS)
        due = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self.flush)

    def flush(self) -> None:
        """Ask for a flush of everything written, unless one is asked for already."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.log.log_end_offset > self._requested:
            self._requested = self.log.log_end_offset
            self._flusher.request(self.log, self._flushed)

    def roll_when_due(self, now_ms: int) -> None:
        """Seal the active segment if it is old enough, once it is on disk."""
        if self.failure is None and self.log.roll_due(now_ms):
            self.flush()
            self.when_flushed(
                self.log.log_end_offset, lambda error: None if error else self._roll(now_ms)
            )

    def expire(self, now_ms: int) -> list[LogSegment]:
        """See `PartitionLog.expire`; what has ended keeps what it has. Raises OSError."""
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
        """Call back with None once everything before `offset` is on disk, or with an error."""
        if offset <= self.log.flushed_offset:
            callback(None)
        elif self.failure is not None:
            callback(self.failure)
        else:
            self._until_flushed.append((offset, callback))

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back whenever there is more to read, until `unwatch`."""
        self._readers[callback] = None
        if self._timer is not None:
            self._flush_later()

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Stop calling back."""
        self._readers.pop(callback, None)

    @property
    def readers(self) -> int:
        """How many wait for more to read."""
        return len(self._readers)

    def log_damage(self, error: CorruptError) -> None:
        """Log what a reader met; who met it asks again and again, and is not logged each time."""
        if str(error) != self._damage:
            self._damage = str(error)
            _log.error("%s: %s", self, error, extra=self.about)

    def log_rejected_batch(self, error: RefusedError, peer: str) -> None:
        """Log why a batch is refused, once a minute: not every client shows what it was told."""
        now = self._loop.time()
        if now < self._silent_until:
            return
        self._silent_until = now + _LOG_INTERVAL_SECONDS
        why = str(error).removeprefix(f"{self}: ")
        about = self.about | {"peer": peer, "error": why}
        _log.warning("%s: refused a batch of %s: %s", self, peer, why, extra=about)

    def stop(self, reason: str) -> None:
        """Refuse writes from now on and answer everybody who waits."""
        self.failure = reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._until_flushed = self._until_flushed, deque()
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
        waiting = self._until_flushed
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
        for callback in tuple(self._readers):
            callback()

    def _refuse(self, error: OSError) -> StorageFailureError:
        self._write_failures.failed(error, self.about)
        return StorageFailureError(f"append failed: {error}")
