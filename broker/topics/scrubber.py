"""The scrubber: a thread that reads sealed segments in the background, and finds rot early.

Rules:

- It reads at a bounded rate, and rests nine times as long as it works: clients come first. After a
  suspect it rests for a tenth of a second at most.
- It checks the CRC of every batch and that offsets follow each other. Damage is logged once and
  counted. A damaged batch is served no more: it can make librdkafka abort its process.
- Bytes that it has read leave the page cache, so that the next pass reads the disk.
- One pass a day at most. The active segment is left to the next one.
- Slices that clients may have found damaged come before everything else, of any segment.
- The thread reads files only. The event loop takes down what it finds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Event, Thread

from headworks import _system_calls
from headworks._broker.log.segment import LogSegment, salvage_fix
from headworks._broker.log.slice_check import READ_BYTES, damaged_batches_in, whole_batch_size
from headworks._broker.topics.partition import HostedPartition
from headworks._kafka.records.batch import (
    HEADER_SIZE,
    Batch,
    InvalidBatchError,
    check_batch,
    read_header,
)
from headworks._kafka.records.file_slice import FileSlice, OpenFile
from headworks.errors import CorruptError

_log = logging.getLogger(__name__)
_PASS_SECONDS = 86_400.0
_REST_FACTOR = 9  # of the time of the work
_LONGEST_PAUSE_SECONDS = 0.1  # between two suspects: a stop waits for it
_MEGABYTE = 1_000_000
_MAX_SUSPECTS = 100  # slices that wait for their check


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
        self._suspects: deque[tuple[HostedPartition, FileSlice]] = deque()
        self._stopping = False
        self._wake = Event()  # set to stop, or because there is a suspect
        self._thread = Thread(target=self._run, name="scrubber", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        if self._bytes_per_second > 0:
            self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def takes_suspects(self) -> bool:
        """Whether there is room for another suspect."""
        return self._thread.is_alive() and len(self._suspects) < _MAX_SUSPECTS

    def suspect(self, partition: HostedPartition, piece: FileSlice) -> None:
        """Check a slice soon, because it may have done harm to a client; the loop calls this."""
        if self.takes_suspects:
            self._suspects.append((partition, piece))
            self._wake.set()

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
                    self._note(partition, segment.path, (segment.file, position), reason)
            except OSError as error:
                what = f"{segment.path}: cannot be read: {error}"
                damage = str(CorruptError(what, fix=salvage_fix(partition.log.folder)))
                self._loop.call_soon_threadsafe(partition.note_damage, damage)

    def _check_suspect(self, partition: HostedPartition, piece: FileSlice) -> None:
        path = partition.path_of(piece.descriptor)
        try:
            for position, reason in damaged_batches_in(piece):
                self._note(partition, path, (piece.descriptor, position), reason)
                if self._stopping:
                    return
        except OSError:
            return  # the next pass reports it
        self.read_bytes += piece.size

    def _note(
        self, partition: HostedPartition, path: Path, batch: tuple[OpenFile, int], reason: str
    ) -> None:
        self._loop.call_soon_threadsafe(partition.note_damaged_batch, path, batch, reason)

    def _damage_in(self, segment: LogSegment) -> Iterator[tuple[int, str]]:
        """Yield the byte and the reason of each damaged batch; a bad header ends the segment."""
        file = segment.file  # stays open, even if retention removes the segment
        position, wanted = 0, READ_BYTES
        expected: int | None = segment.base_offset
        while position < segment.size:
            began, done = time.monotonic(), 0
            data = os.pread(file.fd, wanted, position)
            while size := whole_batch_size(data, done):
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
            position, wanted = position + done, READ_BYTES
            self.read_bytes += done
            worked = time.monotonic() - began
            self._rest(max(done / self._bytes_per_second - worked, _REST_FACTOR * worked))

    def _rest(self, seconds: float) -> None:
        """Sleep; check the suspects that arrive meanwhile, and rest after each as after a read."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 or self._wake.is_set():
            if not self._wake.wait(max(0.0, left)):
                return
            self._wake.clear()
            while self._suspects and not self._stopping:
                began = time.monotonic()
                self._check_suspect(*self._suspects.popleft())
                time.sleep(min(_LONGEST_PAUSE_SECONDS, _REST_FACTOR * (time.monotonic() - began)))
            if self._stopping:
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
