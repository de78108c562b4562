"""An open segment file, which closes when nobody refers to it any more.

Rule: closing a file that was deleted makes the kernel free its blocks, which takes a third of a
second for a gigabyte. Whoever is the last to let go may be the event loop, so `doom`ed files are
closed by a thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

__all__ = ["SegmentFile"]


class SegmentFile:
    """An open file."""

    __slots__ = ("_removed", "fd")

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self._removed = False
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def close_when_unused(self) -> None:
        """The file was, or is about to be, deleted: let a thread close it."""
        _start_closing()
        self._removed = True

    def close(self) -> None:
        """Close now; closing twice does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            if self._removed:
                _closing.put(fd)  # safe in a finaliser, where no lock may be taken
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
