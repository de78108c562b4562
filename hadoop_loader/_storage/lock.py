"""One loader at a time on a warehouse: a lock that is given back on any death of its holder.

On this machine the kernel sees to that (`flock`). In HDFS a loader keeps a file open in a folder of
its own: the name node lets nobody else write it, until the connection to the data node ends with
the process; what another loader can open was left behind by a dead one. In S3, where no death is
noticed, there is a lease (`lease`).

Rules:

- The lock saves work, and staging from another loader's cleaning; what makes two loaders safe is
  the commit log's create-if-absent.
- Whoever takes over from a dead loader in HDFS removes its folder first, in which its commit record
  would have been written: one that was cut off, and not dead, can commit no more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._storage.hdfs import HdfsPath
from hadoop_loader._storage.object_lease import S3Lock
from hadoop_loader._storage.s3 import S3Path
from hadoop_loader._storage.webhdfs import HdfsFileLease
from headworks.errors import UnreachableError, UsageError

__all__ = ["HdfsLock", "LocalLock", "WarehouseLock", "acquire_lock"]

_WAIT_SECONDS = 3.0
_FIX = "wait until it is done, or stop it: the next load finishes what it leaves"


class WarehouseLock(Protocol):
    """Held from construction to `release`."""

    @property
    def record_folder(self) -> AnyPath | None:
        """Where its holder writes what is going to be a commit, if that is a folder of its own."""
        ...

    @property
    def fenced(self) -> bool:
        """Whether who held it before can commit nothing any more, whatever became of it."""
        ...

    def check(self) -> None:
        """UnreachableError if it is not held any more."""
        ...

    def release(self) -> None:
        """Give the lock back."""
        ...


def acquire_lock(state: AnyPath) -> WarehouseLock:
    """Take the lock of the warehouse whose state is there; UsageError if another loader has it."""
    if isinstance(state, Path):
        return LocalLock(state / "lock")
    if isinstance(state, HdfsPath):
        return HdfsLock(state / "loaders")
    assert isinstance(state, S3Path)
    return S3Lock(state / "lease")


class LocalLock:
    """The lock of a warehouse on this machine; UsageError, naming the holder, if it is taken."""

    record_folder = None
    fenced = True

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
                fix=_FIX,
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, str(os.getpid()).encode(), 0)

    def check(self) -> None:
        """The kernel takes it from nobody."""

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._handle)


class HdfsLock:
    """The lock of a warehouse in HDFS; UsageError, naming the holder, if it is taken."""

    fenced = True

    def __init__(self, folder: HdfsPath) -> None:
        self._folder = folder
        self.record_folder = folder / f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self.record_folder.mkdir()
        try:
            self._held = HdfsFileLease(folder.nodes, _alive_file(self.record_folder).path)
        except FileNotFoundError:
            raise self._taken("one that began at the same moment") from None
        try:
            for other in folder.iterdir():
                if other != self.record_folder:
                    self._outlive(other)
        except BaseException:
            self.release()
            raise

    def check(self) -> None:
        """UnreachableError if HDFS may have given it to another loader meanwhile."""
        if not self._held.alive():
            raise UnreachableError(
                f"the loader's hold on warehouse {self._folder.parent.parent} broke: its data node "
                "went away",
                fix="run again: nothing is lost, the next run takes up what this one left",
            )

    def release(self) -> None:
        """Give the lock back; what cannot be removed now, the next loader removes."""
        self._held.close()
        with suppress(UnreachableError):
            self.record_folder.remove_tree()

    def _outlive(self, other: HdfsPath) -> None:
        """Remove what a dead loader left; UsageError if it is alive."""
        until = time.monotonic() + _WAIT_SECONDS
        while _is_open(_alive_file(other)):
            if time.monotonic() > until:
                host, process, _ = other.name.rsplit("-", 2)
                raise self._taken(f"process {process} on {host}")
            time.sleep(0.1)
        other.remove_tree()

    def _taken(self, holder: str) -> UsageError:
        return UsageError(
            f"warehouse {self._folder.parent.parent} is in use by another loader, {holder}",
            fix=_FIX,
        )


def _alive_file(own: HdfsPath) -> HdfsPath:
    return own / "alive"


def _is_open(file: HdfsPath) -> bool:
    """Whether a process has it open; one that died a moment ago may seem to."""
    try:
        file.nodes.probe_append(file.path)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise
    return False
