"""A queue on disk for what does not fit in memory: bounded, in order, and there after a crash.

Rules:

- A spill is a row of files, each locked while its process lives; `leftover_spills` finds those of
  dead processes.
- A message is on disk from `append` until the broker has acknowledged it (`acknowledge`). A crash
  therefore sends some messages again, and loses none that were written.
- The files never hold more than `limit` bytes together. What is delivered makes room: a file goes
  as soon as all of it is, whatever still waits in those behind it.
- A forked child lets go of the parent's files at once: holding them would hide the parent's death.
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

from headworks.errors import CorruptError
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill_file import HEADER, SpillFile, record_of

__all__ = ["Spill", "leftover_spills"]

_SUFFIX = ".spill"
_FILES_PER_SPILL = 16  # room is made in steps of a sixteenth of the limit


class Spill:
    """The spill of this process, new files in `folder`; or a dead one's, which are `found`."""

    def __init__(self, folder: Path, *, limit: int, found: Sequence[SpillFile] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._limit = limit
        self._name = uuid.uuid4()
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._closed = False
        self._files = deque(found or [self._new_file()])
        self.messages = 0  # put here by this process, and not delivered yet
        self._read_messages = 0
        _open_spills.add(self)

    @property
    def empty(self) -> bool:
        """Whether everything that was put has been delivered."""
        files = self._files
        return files[-1].delivered and (len(files) == 1 or files[0].delivered)

    def append(self, message: OutgoingMessage) -> bool:
        """Append a message; False if the files would grow beyond their limit.

        OSError if the disk does not take it; then nothing of it is left.
        """
        record = record_of(message)
        with self._lock:
            if self._closed:
                return False
            last = self._files[-1]
            more = last.size + len(record) > self._limit // _FILES_PER_SPILL and last.size > HEADER
            held = sum(file.size for file in self._files) + HEADER * more
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
        """What `read` gave has been delivered (or has failed for good)."""
        with self._lock:
            if self._closed:
                return
            self.messages, self._read_messages = max(0, self.messages - self._read_messages), 0
            for file in self._files:
                file.acknowledge()
            while len(self._files) > 1 and self._files[0].delivered:
                self._files.popleft().close()

    def close(self) -> None:
        """Let go of the files; those that are delivered are removed."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for file in self._files:
                    file.close()

    def _new_file(self) -> SpillFile:
        return SpillFile(self.folder / f"{self._name}-{next(self._numbers):08d}{_SUFFIX}")

    def _after_fork(self) -> None:
        """In a forked child; a thread that did not survive the fork may have held the lock."""
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


def leftover_spills(folder: Path) -> Iterator[Spill]:
    """The spills of dead processes in `folder`, opened and locked, one by one."""
    paths = sorted(folder.glob(f"*{_SUFFIX}"))
    for _, of_one in groupby(paths, lambda path: path.name.rpartition("-")[0]):
        found = _locked(list(of_one))
        if found:
            yield Spill(folder, limit=0, found=found)


def _locked(paths: Sequence[Path]) -> list[SpillFile]:
    """The files of one process, or nothing if it lives (or another has just found them)."""
    found: list[SpillFile] = []
    for path in paths:
        try:
            found.append(SpillFile(path, found=True))
        except BlockingIOError:
            for file in found:
                file.release()
            return []
        except FileNotFoundError:
            continue  # all of it has just been delivered
        except CorruptError:
            continue  # died before it wrote anything
    return found
