"""The lock of a data folder, which only one broker at a time may use."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headworks.errors import UsageError

__all__ = ["FolderLock"]


class FolderLock:
    """Holds `<folder>/lock`. The kernel releases it however the process ends."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unusable(folder, error) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise UsageError(
                f"data folder {folder} is in use by another broker (process {holder})",
                fix="stop that broker, or give this one another --data-dir",
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"{os.getpid()}\n".encode())
        except OSError as error:
            os.close(self._fd)
            raise _unusable(folder, error) from None

    def release(self) -> None:
        """Release the lock."""
        os.close(self._fd)


def _unusable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"data folder {folder} cannot be used: {error.strerror}",
        fix="see that it may be written to and that its disk has room, or give another --data-dir",
    )
