"""Files and names that survive a power cut. Needs no third-party package.

Rule: starting a sync and waiting for it are separate steps, because a disk syncs many files in
hardly more time than one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from hadoop_loader._storage.remote_path import RemotePath
from headworks import _atomic_file, _system_calls

_MAX_THREADS = 8
_MAX_PENDING = 256


class FsyncPool:
    """Makes files, and the names in folders, durable in threads; remote ones already are."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_MAX_THREADS, "fsync")
        self._pending: deque[Future[None]] = deque()  # oldest first, at most _MAX_PENDING

    def add(self, path: Path | RemotePath) -> None:
        """Start to sync a file or folder; block while too many are pending."""
        if not isinstance(path, Path):
            return
        self._pending.append(self._pool.submit(_fsync, path))
        if len(self._pending) > _MAX_PENDING:
            self._pending.popleft().result()

    def wait(self) -> None:
        """Return when everything is durable, and end the threads; raise the first error."""
        try:
            while self._pending:
                self._pending.popleft().result()
        finally:
            self._pool.shutdown(cancel_futures=True)


def sync_folder(folder: Path | RemotePath) -> None:
    """Make the names in a folder durable; a remote file system has done so."""
    if isinstance(folder, Path):
        _atomic_file.sync_folder(folder)


def sync_folders(folders: Iterable[Path | RemotePath]) -> None:
    """Make the names in all these folders durable."""
    pool = FsyncPool()
    for folder in folders:
        pool.add(folder)
    pool.wait()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        _system_calls.sync(handle)
    finally:
        os.close(handle)
