"""Takes away what Linux has and macOS lacks, from every Python process that has this on its path.

`PYTHONPATH=tests/as_on_macos .venv/bin/pytest FILES` runs tests so, with their servers.
`sendfile` is taken away as well, although macOS has it, so that its fall-back runs.

Rules:

- F_FULLFSYNC is macOS's command, and syncs as it does there. Nothing else is added.
- /proc is missing for our commands only. The tests themselves look at processes.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from typing import Any

FULL_SYNC = 51  # F_FULLFSYNC in macOS's sys/fcntl.h
MISSING: dict[Any, tuple[str, ...]] = {
    os: ("fdatasync", "posix_fadvise", "posix_fallocate", "sendfile", "POSIX_FADV_DONTNEED"),
    socket: ("MSG_MORE", "TCP_KEEPIDLE"),
}
_OUR_COMMANDS = ("headworks", "headworks._cli")


def take_away() -> None:
    """Remove the calls, and put F_FULLFSYNC in their place."""
    keepalive = socket.TCP_KEEPIDLE
    for module, names in MISSING.items():
        for name in names:
            delattr(module, name)
    really = fcntl.fcntl

    def replaced(fd: Any, command: int, argument: Any = 0) -> Any:
        return os.fsync(fd) if command == FULL_SYNC else really(fd, command, argument)

    vars(fcntl).update(F_FULLFSYNC=FULL_SYNC, fcntl=replaced)
    vars(socket).update(TCP_KEEPALIVE=keepalive)  # its name there


def hide_processes(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook that refuses to open or list anything in /proc."""
    if event in {"open", "os.listdir", "os.scandir"} and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(f"no such file: {arguments[0]}")


if __name__ == "sitecustomize":
    take_away()
    if any(os.path.basename(word) in _OUR_COMMANDS for word in sys.orig_argv[1:6]):
        sys.addaudithook(hide_processes)
