"""The words of a counter file: mapped from the file, or in memory if the disk refuses the file.

Rules:

- Every page of a mapping has its block on disk before the first write. A write to a page without
  one is a bus error on a full disk, and would end the user's process.
- A disk that refuses never stops the counting. The words move to memory, and a warning says so
  once. A process that is killed then loses the counts that it had not published.
- After such a move the file keeps older counts. Its increments have the ids of those in memory, so
  the audit counts none twice if another process publishes the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
from pathlib import Path

from headworks import _system_calls

_log = logging.getLogger("headworks.audit")


class MappedWords:
    """Unsigned 64-bit words in a new file of `size` bytes, or by `size` None in an existing one.

    BlockingIOError if a living process holds the existing file, and OSError if it cannot be mapped.
    """

    def __init__(self, path: Path, size: int | None) -> None:
        self.path = path
        # The open file, if there is one; its lock says that this process lives.
        self._descriptor: int | None = None
        self._in_memory = False  # whether the file refused, and the words are in memory
        try:
            self._open(size)
        except OSError as error:
            if size is None:
                raise
            self._keep_in_memory(size, error)

    def grow(self, size: int) -> None:
        """Make room for `size` bytes. The old `words` and `memory` stay valid for the caller."""
        old = self.memory
        if self._descriptor is not None and not self._in_memory:
            try:
                _system_calls.reserve(self._descriptor, size)
                self._map(self._descriptor)
                return
            except OSError as error:
                self._warn(error)
        self._map_memory(size)
        self.memory[: len(old)] = old[:]

    def release(self) -> None:
        """Unmap and close the file; a process that looks for leftovers may take it."""
        self.words.release()
        self.memory.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, size: int | None) -> None:
        if size is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | (os.O_CREAT if size is not None else 0), 0o600)
        try:
            # A process that looks for leftovers may hold a new file for a moment.
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if size is not None else fcntl.LOCK_NB))
            length = os.fstat(descriptor).st_size if size is None else size
            if length:  # else nothing was ever counted, and the mapping fails
                _system_calls.reserve(descriptor, length)
            self._map(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _map(self, descriptor: int) -> None:
        self.memory = mmap.mmap(descriptor, 0)
        self.words = memoryview(self.memory).cast("Q")

    def _map_memory(self, size: int) -> None:
        self._in_memory = True
        self.memory = mmap.mmap(-1, size)
        self.words = memoryview(self.memory).cast("Q")

    def _keep_in_memory(self, size: int, error: OSError) -> None:
        self._warn(error)
        with contextlib.suppress(OSError):  # the folder may be what fails
            self.path.unlink(missing_ok=True)
        self._map_memory(size)

    def _warn(self, error: OSError) -> None:
        _log.warning(
            "%s: the audit counts are kept in memory from now on, and lost if the process is"
            " killed: %s",
            self.path,
            error,
            extra={"path": str(self.path)},
        )
