"""One loader at a time on a warehouse: an advisory lock that the kernel gives back on any death.

The lock saves work; what makes two loaders safe is the commit log's create-if-absent.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headworks.errors import UsageError

__all__ = ["WarehouseLock"]


class WarehouseLock:
    """Held from construction to `release`; UsageError, naming the holder, if it is taken."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._handle, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._handle)
            raise UsageError(
                f"warehouse {path.parent.parent} is in use by another loader, process {holder}",
                fix="wait until it is done, or stop it: the next load finishes what it leaves",
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._handle)
