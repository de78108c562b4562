"""The lock of a warehouse: one loader at a time, released when its holder dies.

- On this machine, the kernel releases it (`flock`).
- In HDFS, a loader keeps a file open in a folder of its own. The name node lets no other process
  write that file until the holder's connection ends. If others can open it, its loader is dead.
- S3 notices no death, so a lease expires there (`object_lease`).

Rules:

- The lock avoids wasted work, and protects staged files. Two loaders are safe without it, because
  commit records are created only if absent.
- In HDFS, the next holder first removes the folder of a dead loader, in which that one would write
  its commit record. A loader that was only cut off can then no longer commit: it is fenced.
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
from hadoop_loader._storage.object_lease import S3Lock, in_use
from hadoop_loader._storage.s3 import S3Path
from hadoop_loader._storage.webhdfs import HdfsFileLease
from headworks.errors import UnreachableError

_WAIT_SECONDS = 3.0


class WarehouseLock(Protocol):
    """A lock that is held from construction to `release`."""

    @property
    def record_folder(self) -> AnyPath | None:
        """The holder's own folder for a commit record that has no name yet, or None."""
        ...

    @property
    def fenced(self) -> bool:
        """Whether no earlier holder can still commit."""
        ...

    def check(self) -> None:
        """Raise UnreachableError if the lock may be lost."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...


def acquire_lock(state: AnyPath) -> WarehouseLock:
    """Acquire the lock of the warehouse with this state folder; UsageError if it is taken."""
    if isinstance(state, Path):
        return LocalLock(state / "lock")
    if isinstance(state, HdfsPath):
        return HdfsLock(state / "loaders")
    assert isinstance(state, S3Path)
    return S3Lock(state / "lease")


class LocalLock:
    """The lock of a warehouse on this machine; UsageError, with the holder, if it is taken."""

    record_folder = None
    fenced = True

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise in_use(path.parent.parent, f"process {holder}") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def check(self) -> None:
        """Do nothing: the kernel never takes the lock away."""

    def release(self) -> None:
        """Release the lock."""
        os.close(self._fd)


class HdfsLock:
    """The lock of a warehouse in HDFS; UsageError, with the holder, if it is taken."""

    fenced = True

    def __init__(self, folder: HdfsPath) -> None:
        self._folder = folder
        self.record_folder = folder / f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self.record_folder.mkdir()
        try:
            self._lease = HdfsFileLease(folder.nodes, _alive_file(self.record_folder).path)
        except FileNotFoundError:
            raise in_use(folder.parent.parent, "one that began at the same moment") from None
        try:
            for other in folder.iterdir():
                if other != self.record_folder:
                    self._outlive(other)
        except BaseException:
            self.release()
            raise

    def check(self) -> None:
        """Raise UnreachableError if HDFS may have given the lock to another loader."""
        if not self._lease.alive():
            raise UnreachableError(
                f"the loader's hold on warehouse {self._folder.parent.parent} broke: its data node "
                "went away",
                fix="run again: nothing is lost, and the next run finishes the work of this one",
            )

    def release(self) -> None:
        """Release the lock; the next loader removes what this one cannot."""
        self._lease.close()
        with suppress(UnreachableError):
            self.record_folder.remove_tree()

    def _outlive(self, other: HdfsPath) -> None:
        """Remove the folder of a dead loader; UsageError if it is alive."""
        until = time.monotonic() + _WAIT_SECONDS
        while _is_open(_alive_file(other)):
            if time.monotonic() > until:
                host, process, _ = other.name.rsplit("-", 2)
                raise in_use(self._folder.parent.parent, f"process {process} on {host}")
            time.sleep(0.1)
        other.remove_tree()


def _alive_file(own: HdfsPath) -> HdfsPath:
    return own / "alive"


def _is_open(file: HdfsPath) -> bool:
    """Return whether a process has the file open; one that died a moment ago may seem to."""
    try:
        file.nodes.probe_append(file.path)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise
    return False
