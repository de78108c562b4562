"""The lock of a data folder, which only one broker at a time may use.

Rules:

- The folder itself is locked, so that the lock holds when somebody deletes the file `lock`.
- The file is locked too. Some network file systems lock files only.
- The kernel releases both however the process ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headworks.errors import UsageError


class FolderLock:
    """Holds the folder and `<folder>/lock`."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unusable(folder, error) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _lock_if_possible(self._folder_fd)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode("ascii", "replace").strip() or "unknown"
            self.release()
            raise UsageError(
                f"data folder {folder} is in use by another broker (process {holder})",
                fix="stop that broker, or give this one another --data-dir",
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"{os.getpid()}\n".encode())
        except OSError as error:
            self.release()
            raise _unusable(folder, error) from None

    def release(self) -> None:
        """Release the lock."""
        os.close(self._fd)
        os.close(self._folder_fd)


def _lock_if_possible(folder_fd: int) -> None:
    """Lock a folder, or raise BlockingIOError."""
    try:
        fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # this file system locks no folders
        return


def _unusable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"data folder {folder} cannot be used: {error.strerror}",
        fix="see that it may be written to and that its disk has room, or give another --data-dir",
    )
