"""The scrubber: a thread that reads sealed segments in the background, and finds rot early.

Rules:

- It reads at a bounded rate, and rests nine times as long as it works: clients come first.
- It checks the CRC of every batch and that offsets follow each other. Damage is logged once and
  counted. A damaged batch is served no more: it can make librdkafka abort its process.
- Bytes that it has read leave the page cache, so that the next pass reads the disk.
- One pass a day at most. The active segment is left to the next one.
- The thread reads files only. The event loop takes down what it finds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from threading import Event, Thread

from headworks import _system_calls
from headworks._broker.log.segment import LogSegment, salvage_fix
from headworks._broker.topics.partition import HostedPartition
from headworks._kafka.records.batch import (
    HEADER_SIZE,
    Batch,
    InvalidBatchError,
    check_batch,
    read_header,
)
from headworks._kafka.records.file_slice import OpenFile
from headworks.errors import CorruptError

_log = logging.getLogger(__name__)
_PASS_SECONDS = 86_400.0
_READ_BYTES = 1 << 16
_REST_FACTOR = 9  # of the time of the work
_MEGABYTE = 1_000_000


class _StoppingError(Exception):
    """The thread must end."""


class Scrubber:
    """Scrubs the sealed segments of all partitions, `mb_per_second` at most; 0: none."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[HostedPartition]],
        *,
        mb_per_second: float,
        pass_seconds: float = _PASS_SECONDS,
    ) -> None:
        self.passes = 0  # over all partitions, since the start
        self.read_bytes = 0  # since the start
        self._partitions = partitions
        self._bytes_per_second = mb_per_second * _MEGABYTE
        self._pass_seconds = pass_seconds
        self._loop = asyncio.get_running_loop()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="scrubber", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        if self._bytes_per_second > 0:
            self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                began = time.monotonic()
                for partition in self._partitions():
                    self._scrub(partition)
                self.passes += 1
                self._rest(began + self._pass_seconds - time.monotonic())
        except _StoppingError:
            return

    def _scrub(self, partition: HostedPartition) -> None:
        for segment in partition.log.segments[:-1]:
            try:
                for position, reason in self._damage_in(segment):
                    what = f"{segment.path}: damaged at byte {position}: {reason}"
                    self._note(partition, what, (segment.file, position))
            except OSError as error:
                self._note(partition, f"{segment.path}: cannot be read: {error}")

    def _note(
        self, partition: HostedPartition, what: str, batch: tuple[OpenFile, int] | None = None
    ) -> None:
        damage = str(CorruptError(what, fix=salvage_fix(partition.log.folder)))
        self._loop.call_soon_threadsafe(partition.note_damage, damage, batch)

    def _damage_in(self, segment: LogSegment) -> Iterator[tuple[int, str]]:
        """Yield the byte and the reason of each damaged batch; a bad header ends the segment."""
        file = segment.file  # stays open, even if retention removes the segment
        position, wanted = 0, _READ_BYTES
        expected: int | None = segment.base_offset
        while position < segment.size:
            began, done = time.monotonic(), 0
            data = os.pread(file.fd, wanted, position)
            while size := self._whole(data, done):
                batch = read_header(data, done)
                reason, expected = _checked(data, batch, expected, gaps=segment.gaps)
                if reason:
                    yield position + done, reason
                done += size
            if not done:
                claimed = read_header(data).size if len(data) >= HEADER_SIZE else 0
                if wanted < claimed <= segment.size - position:
                    wanted = claimed  # one batch that is larger than the window
                    continue
                yield position, "no whole batch starts here"
                return
            _system_calls.drop_cached(file.fd, position, done)
            position, wanted = position + done, _READ_BYTES
            self.read_bytes += done
            worked = time.monotonic() - began
            self._rest(max(done / self._bytes_per_second - worked, _REST_FACTOR * worked))

    @staticmethod
    def _whole(data: bytes, position: int) -> int:
        """Return the size of the batch at `position`, 0 if it is not whole in `data`."""
        if len(data) - position < HEADER_SIZE:
            return 0
        size = read_header(data, position).size
        return size if HEADER_SIZE <= size <= len(data) - position else 0

    def _rest(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise _StoppingError


def _checked(
    data: bytes, batch: Batch, expected: int | None, *, gaps: bool
) -> tuple[str, int | None]:
    """Return what is wrong with a batch, or nothing, and the offset that must follow, if known."""
    try:
        check_batch(data, batch.position, batch.position + batch.size)
    except InvalidBatchError as error:
        return str(error), None
    base = batch.base_offset
    if expected is None or base == expected or (gaps and base > expected):
        return "", batch.last_offset + 1
    return f"offset {base} where {expected} follows", expected + batch.last_offset_delta + 1
