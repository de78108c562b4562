"""An open segment file that closes when its last reference is dropped.

Rule: the event loop never closes a deleted file. The kernel then frees its blocks, which takes a
third of a second for a gigabyte. After `close_when_unused` a thread closes the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread


class SegmentFile:
    """An open file."""

    __slots__ = ("fd", "identity", "removed")

    def __init__(self, path: Path) -> None:
        self.fd = -1  # the descriptor; -1 when closed
        self.removed = False  # whether a thread closes it, because it is or will be deleted
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        opened = os.fstat(self.fd)
        self.identity = opened.st_dev, opened.st_ino  # no other file has it while this one is open

    def close_when_unused(self) -> None:
        """Let a thread close the file, because it was deleted or is about to be."""
        _start_closing()
        self.removed = True

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            if self.removed:
                _closing.put(fd)  # safe in a finalizer, which may take no lock
            else:
                os.close(fd)

    def __del__(self) -> None:
        self.close()


_closing: SimpleQueue[int] = SimpleQueue()
_starting = Lock()
_threads: list[Thread] = []


def _start_closing() -> None:
    with _starting:
        if not _threads:
            thread = Thread(target=_close_all, name="closing removed files", daemon=True)
            _threads.append(thread)
            thread.start()


def _close_all() -> None:
    while True:
        os.close(_closing.get())
