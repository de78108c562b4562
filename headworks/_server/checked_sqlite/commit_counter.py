"""How many transactions of a store were acknowledged, in a small file beside it.

SQLite ends a store at the first frame of its log that it cannot read, and begins without a log if
there is none. So a deleted or damaged log, or an old copy of the store, looks like a store that
never held more. The counter tells them apart.

Rules:

- A store counts its transactions in a row of its own. The counter is written after the commit and
  before the acknowledgement, so it never exceeds what the store held.
- A commit that is not flushed counts until the machine restarts: a power cut may lose it.
- A missing or damaged counter is begun again. It takes two faults to lose a transaction silently.
- Several processes may use one counter, and it never decreases while they do.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from headworks._system_calls import PROC, sync_data
from headworks.errors import CorruptError, UsageError

_log = logging.getLogger(__name__)
_MAGIC = b"HWCOMMIT"
_RECORD = struct.Struct(">8sQQ16s")  # magic, commits, flushed commits, the boot that wrote it
_CRC = struct.Struct(">I")
_BOOT_ID = PROC / "sys" / "kernel" / "random" / "boot_id"
_NO_BOOT = bytes(16)


def counter_path(path: Path) -> Path:
    """Return the path of the counter of the store at `path`."""
    return path.with_name(f"{path.name}-commits")


def required_commits(path: Path) -> int:
    """Return how many commits the store at `path` must hold; 0 if no counter can be read."""
    try:
        return _required(counter_path(path).read_bytes())
    except FileNotFoundError:
        return 0


def refuse_missing(path: Path, fix: str) -> None:
    """Raise CorruptError with this fix if there is no store at `path`, but transactions of one.

    SQLite would make an empty store, and remove the log beside it.
    """
    required = 0 if path.exists() else required_commits(path)
    if required:
        raise CorruptError(
            f"the store {path} is missing, and held {required} transactions"
            f" ({counter_path(path).name})",
            fix=f"{fix}. {_begin_again(path)}",
        )


def _begin_again(path: Path) -> str:
    return f"If you have restored a copy, or start over, remove {counter_path(path)}"


class CommitCounter:
    """The open counter of the store at `path`. Raises UsageError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = counter_path(path)
        self._boot = _boot()
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(
                f"{self._path} cannot be opened: {error.strerror}",
                fix="check the permissions of the folder and the free space of its disk",
            ) from None

    def begin(self, store: Path, read_commits: Callable[[], int], fix: str) -> None:
        """Start to count from the commits that the store holds.

        Raises CorruptError with this fix if more were acknowledged.
        """
        with self._locked():
            content = self._read()
            # Read after the counter: another process may commit at any time.
            commits = read_commits()
            required, (_, flushed) = _required(content), _numbers(content)
            if required > commits:
                raise CorruptError(
                    f"the store {store} lacks {required - commits} of the {required} transactions"
                    f" that were acknowledged ({self._path.name}): {store.name}-wal was deleted or"
                    " damaged, or an old copy is in the store's place",
                    fix=f"{fix}. {_begin_again(store)}",
                )
            if content and not _fits(content):
                _log.warning(
                    "%s is damaged, and is begun again",
                    self._path,
                    extra={"path": str(self._path)},
                )
            self._write(commits, min(commits, flushed))

    def begin_again(self, commits: int) -> None:
        """Start to count from these commits, whatever was acknowledged before."""
        with self._locked():
            self._write(commits, 0)

    def record(self, commits: int, *, flushed: bool) -> None:
        """Record a commit. If it is flushed, this is on disk too when the call returns."""
        try:
            with self._locked():
                known, on_disk = _numbers(self._read())
                if flushed:
                    on_disk = max(commits, on_disk)
                self._write(max(commits, known), on_disk)
            if flushed:
                sync_data(self._fd)
        except OSError as error:
            # The commit is on disk. Only its loss would be silent.
            _log.warning(
                "%s cannot be written: %s",
                self._path,
                error.strerror,
                extra={"path": str(self._path)},
            )

    def close(self) -> None:
        """Close the file; nothing is recorded after that."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _read(self) -> bytes:
        return os.pread(self._fd, _RECORD.size + _CRC.size, 0)

    def _write(self, commits: int, flushed: int) -> None:
        record = _RECORD.pack(_MAGIC, commits, flushed, self._boot)
        os.pwrite(self._fd, record + _CRC.pack(crc32(record)), 0)


def _required(content: bytes) -> int:
    """Return how many commits a power cut, if there was one, has left."""
    commits, flushed = _numbers(content)
    if not flushed and not commits:
        return 0
    boot = content[_RECORD.size - 16 : _RECORD.size]
    return commits if boot == _boot() != _NO_BOOT else flushed


def _numbers(content: bytes) -> tuple[int, int]:
    """Return the commits and the flushed commits of a record; zeros if it is damaged."""
    if not _fits(content):
        return 0, 0
    _, commits, flushed, _ = _RECORD.unpack_from(content)
    return commits, flushed


def _fits(content: bytes) -> bool:
    return content[_RECORD.size :] == _CRC.pack(crc32(content[: _RECORD.size]))


def _boot() -> bytes:
    """Return the identity of this boot of the machine, or zeros if the system has none."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text(encoding="ascii").strip().replace("-", ""))
    except (OSError, ValueError):
        return _NO_BOOT
