"""A bounded queue on disk, in order, that survives the process.

Rules:

- A spill is a sequence of files. Its process locks each of them while it lives, and
  `leftover_spills` finds the spills of dead processes.
- A message is on disk from `append` until `acknowledge`. A crash therefore sends some messages
  again, and loses none that were written.
- The files never hold more than `limit` bytes together. A file is removed as soon as all of it is
  delivered, so that delivered messages make room.
- A forked child releases the parent's files at once: holding them would hide the parent's death.
- Every method may be called by any thread; a lock guards the files.
"""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count, groupby
from pathlib import Path

from headworks._kafka.cluster_identity import ClusterIdentity
from headworks.errors import CorruptError, UsageError
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill_file import HEADER_BYTES, SpillFile, record_of

_SUFFIX = ".spill"
_FILES_PER_SPILL = 16  # room is made in steps of a sixteenth of the limit


class Spill:
    """The spill of this process, in new files of `folder`; or that of a dead one, in `found`.

    The messages are for `cluster`; None: for that of whichever process sends them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        limit: int,
        found: Sequence[SpillFile] = (),
        cluster: ClusterIdentity | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._limit = limit  # bytes of all files together
        self._name = uuid.uuid4()  # the name of the spill; its files add a number
        self._numbers = count(1)
        self._lock = threading.Lock()  # guards the attributes below and the files
        self._closed = False
        self.cluster = cluster  # also after `name_cluster`
        self._files = deque(found or [self._new_file()])
        self.messages = 0  # appended by this process and not delivered yet
        self._read_messages = 0
        _open_spills.add(self)

    @property
    def empty(self) -> bool:
        """Whether every message is delivered."""
        files = self._files
        return files[-1].delivered and (len(files) == 1 or files[0].delivered)

    def name_cluster(self, cluster: ClusterIdentity) -> None:
        """Name the cluster that the messages are for, in all files."""
        with self._lock:
            self.cluster = cluster
            for file in () if self._closed else self._files:
                file.name_cluster(cluster)

    def append(self, message: OutgoingMessage) -> bool:
        """Append a message; return False if the files would grow beyond their limit.

        OSError if the disk does not take it; no part of it remains then.
        """
        record = record_of(message)
        with self._lock:
            if self._closed:
                return False
            last = self._files[-1]
            more = (
                last.size + len(record) > self._limit // _FILES_PER_SPILL
                and last.size > HEADER_BYTES
            )
            held = sum(file.size for file in self._files) + HEADER_BYTES * more
            if held + len(record) > self._limit:
                return False
            if more:
                last = self._new_file()
                self._files.append(last)
            if not last.append(record):
                return False
            self.messages += 1
        return True

    def read(self, max_messages: int, max_bytes: int = 16 << 20) -> list[OutgoingMessage]:
        """Return the next messages in order; they stay on disk until `acknowledge` is called."""
        found: list[OutgoingMessage] = []
        with self._lock:
            for file in () if self._closed else self._files:
                found += file.read(max_messages - len(found), max_bytes)
                if len(found) >= max_messages:
                    break
            self._read_messages = len(found)
        return found

    def acknowledge(self) -> None:
        """Mark the messages that `read` returned last as delivered, or failed for good."""
        with self._lock:
            if self._closed:
                return
            self.messages, self._read_messages = max(0, self.messages - self._read_messages), 0
            for file in self._files:
                file.acknowledge()
            while len(self._files) > 1 and self._files[0].delivered:
                self._files.popleft().close()

    def close(self) -> None:
        """Release the files, and remove those that are delivered."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for file in self._files:
                    file.close()

    def _new_file(self) -> SpillFile:
        path = self.folder / f"{self._name}-{next(self._numbers):08d}{_SUFFIX}"
        return SpillFile(path, cluster=self.cluster)

    def _after_fork(self) -> None:
        """Release the files in a forked child, in which nobody may hold the old lock any more."""
        self._lock = threading.Lock()
        if not self._closed:
            self._closed = True
            for file in self._files:
                file.release()


_open_spills: weakref.WeakSet[Spill] = weakref.WeakSet()


def _release_after_fork() -> None:
    for spill in list(_open_spills):
        spill._after_fork()
    _open_spills.clear()


os.register_at_fork(after_in_child=_release_after_fork)


def open_spills(folder: Path, limit: int, cluster: ClusterIdentity) -> tuple[list[Spill], Spill]:
    """Return the spills of dead processes, and a new one for `cluster`; UsageError if it fails."""
    try:
        return list(leftover_spills(folder)), Spill(folder, limit=limit, cluster=cluster)
    except OSError as error:
        raise UsageError(
            f"state_dir {folder} takes no spill: {error}",
            fix="give a state_dir on a disk that can be written, or another when_full",
        ) from None


def leftover_spills(folder: Path) -> Iterator[Spill]:
    """Open and lock the spills of dead processes in `folder`, and yield each."""
    paths = sorted(folder.glob(f"*{_SUFFIX}"))
    for _, of_one in groupby(paths, lambda path: path.name.rpartition("-")[0]):
        found = _locked(list(of_one))
        if found:
            yield Spill(folder, limit=0, found=found, cluster=found[-1].cluster)


def _locked(paths: Sequence[Path]) -> list[SpillFile]:
    """Return the files of a dead process; nothing if it lives, or another one took them."""
    found: list[SpillFile] = []
    for path in paths:
        try:
            found.append(SpillFile(path, found=True))
        except BlockingIOError:
            for file in found:
                file.release()
            return []
        except FileNotFoundError:
            continue  # it has just been delivered
        except CorruptError:
            continue  # the process died before it wrote anything
    return found
