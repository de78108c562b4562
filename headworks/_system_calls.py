"""System calls that differ between Linux, macOS, and other Unix systems, each with its fall-back.

Rules:

- This is the only module that names them (tests/headworks/test_system_calls.py checks that).
- A fall-back never promises less than the call that it replaces, unless its docstring says so.
- A sync that fails is an error. A fall-back is for a missing call, not for a disk that fails.

| missing | instead |
|---|---|
| `fdatasync` | `fsync` |
| an `fsync` that reaches the disk (macOS) | `fcntl(F_FULLFSYNC)` |
| `sendfile` | the bytes pass through memory |
| `MSG_MORE` | two packets where one would do |
| `posix_fallocate` | zeros are written |
| `posix_fadvise` | nothing: it only advises |
| `TCP_KEEPIDLE` | `TCP_KEEPALIVE` (macOS), or the system's own interval |
| `/proc` | each caller says what it does without |
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

PROC = Path("/proc")  # processes and kernel settings as files; missing on macOS
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)  # for `send`: more bytes follow at once
SENDS_FILES = hasattr(os, "sendfile")
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_NO_FULL_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.EOPNOTSUPP}
_DONT_NEED: int | None = getattr(os, "POSIX_FADV_DONTNEED", None)
_ZEROS = bytes(1 << 16)
_KEEPALIVE_IDLE: int | None = getattr(
    socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None)
)
_KEEPALIVE_INTERVAL: int | None = getattr(socket, "TCP_KEEPINTVL", None)
_KEEPALIVE_PROBES: int | None = getattr(socket, "TCP_KEEPCNT", None)


def sync(fd: int) -> None:
    """Put a file, or the names in a folder, on disk. Raises OSError.

    On macOS `fsync` leaves the bytes in the disk's own cache, and F_FULLFSYNC does not. A file
    system that lacks F_FULLFSYNC (a network disk) gets `fsync`.
    """
    if _FULL_SYNC is None or not _full_sync(fd, _FULL_SYNC):
        os.fsync(fd)


def sync_data(fd: int) -> None:
    """Put the bytes and the length of a file on disk, and its times if need be. Raises OSError."""
    if _FULL_SYNC is None and hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        sync(fd)


def send_file(target: int, source: int, position: int, size: int) -> int:
    """Send bytes of a file to a plaintext socket, and return how many. Only if `SENDS_FILES`."""
    return os.sendfile(target, source, position, size)


def reserve(fd: int, size: int) -> None:
    """Give a file at least `size` bytes, each with its block on disk. Raises OSError.

    Without `posix_fallocate`, zeros are written after the end. Holes before it stay holes.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    end = os.fstat(fd).st_size
    while end < size:
        end += os.pwrite(fd, _ZEROS[: size - end], end)


def drop_cached(fd: int, position: int, size: int) -> None:
    """Tell the page cache that these bytes are not needed soon."""
    if _DONT_NEED is not None and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, size, _DONT_NEED)


def keepalive_options(idle: int, interval: int, probes: int) -> tuple[tuple[int, int, int], ...]:
    """Return the options (level, name, value) by which the kernel notices a dead peer.

    It probes after `idle` seconds without a byte, every `interval` seconds, and gives up after
    `probes` probes. A system that lacks an option uses its own value.
    """
    wanted = (
        (_KEEPALIVE_IDLE, idle),
        (_KEEPALIVE_INTERVAL, interval),
        (_KEEPALIVE_PROBES, probes),
    )
    found = tuple((socket.IPPROTO_TCP, name, value) for name, value in wanted if name is not None)
    return ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *found)


def _full_sync(fd: int, command: int) -> bool:
    """Return whether the file system has F_FULLFSYNC, after the sync. Raises OSError."""
    try:
        fcntl.fcntl(fd, command)
    except OSError as error:
        if error.errno in _NO_FULL_SYNC:
            return False
        raise
    return True
