"""Bytes and names that outlive a power cut. Needs nothing installed, as the commit log does not.

Rule: what hands a file over and what waits for it are two steps, because a disk makes many files
durable in hardly more time than one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

__all__ = ["Syncing", "sync_folder", "sync_folders"]

_AT_ONCE = 8
_WAITING = 256


class Syncing:
    """Makes files durable, and the names in folders, while its owner does something else."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, "sync")
        self._waiting: deque[Future[None]] = deque()

    def add(self, path: Path) -> None:
        """Begin with this file or folder; what is under way is bounded."""
        self._waiting.append(self._pool.submit(_sync, path))
        if len(self._waiting) > _WAITING:
            self._waiting.popleft().result()

    def wait(self) -> None:
        """Return when all is durable; raises the first error that one met. The last thing to do."""
        try:
            while self._waiting:
                self._waiting.popleft().result()
        finally:
            self._pool.shutdown(cancel_futures=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    _sync(folder)


def sync_folders(folders: Iterable[Path]) -> None:
    """Make the names in all these folders durable."""
    syncing = Syncing()
    for folder in folders:
        syncing.add(folder)
    syncing.wait()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
