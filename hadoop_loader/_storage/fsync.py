"""Files and names that survive a power cut. Needs no third-party package.

Rules:

- Starting a sync and waiting for it are separate steps, because a disk syncs many files in hardly
  more time than one.
- To hand a file to a thread costs a third of syncing it. Once there are many, threads take several.
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
_SINGLE = 4 * _MAX_THREADS  # files that threads take one by one, before they take several
_SEVERAL = 16
_MAX_PENDING = 64  # pieces of work


class FsyncPool:
    """Makes files, and the names in folders, durable in threads; remote ones already are."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_MAX_THREADS, "fsync")
        self._pending: deque[Future[None]] = deque()  # oldest first, at most _MAX_PENDING
        self._next: list[Path] = []  # not handed to a thread yet
        self._started = 0  # pieces of work so far

    def add(self, path: Path | RemotePath) -> None:
        """Sync a file or folder, now or with the next ones; block while too many are pending."""
        if not isinstance(path, Path):
            return
        self._next.append(path)
        if self._started < _SINGLE or len(self._next) == _SEVERAL:
            self._start()

    def wait(self) -> None:
        """Return when everything is durable, and end the threads; raise the first error."""
        try:
            if self._next:
                self._start()
            while self._pending:
                self._pending.popleft().result()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _start(self) -> None:
        self._pending.append(self._pool.submit(_fsync_all, self._next))
        self._next = []
        self._started += 1
        if len(self._pending) > _MAX_PENDING:
            self._pending.popleft().result()


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


def _fsync_all(paths: Iterable[Path]) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            _system_calls.sync(handle)
        finally:
            os.close(handle)
