"""The lock of a data folder: one broker at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headworks.errors import UsageError

__all__ = ["FolderLock"]


class FolderLock:
    """Holds `<folder>/lock`; the kernel lets go of it however the process ends."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise UsageError(
                f"data folder {folder} is in use by another broker (process {holder})",
                fix="stop that broker, or give this one another --data-dir",
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let go."""
        os.close(self._fd)
