"""The limit of open files, and the last of them, which are reserved.

Rule: a new connection, and a partition that is being opened, never get a reserved file. Partitions
that are served need them: a log that cannot open its folder to flush the name of a segment cannot
be written any more.
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

from headworks.errors import UsageError

RESERVED_FILES = 64
_MACOS_OPEN_MAX = 10_240  # OPEN_MAX in sys/syslimits.h
_LEAST_CONNECTIONS = 64  # that a broker can serve, its own files included


def raise_limit() -> None:
    """Raise the limit as far as the system allows. Each segment and connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS reports no hard limit, and then refuses to have none
        if soft < _MACOS_OPEN_MAX:
            resource.setrlimit(resource.RLIMIT_NOFILE, (_MACOS_OPEN_MAX, hard))


def refuse_low_limit(logs: Path) -> None:
    """Raise UsageError if the limit leaves no room for these logs and some connections.

    A partition takes one file, and each of its segments another.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = RESERVED_FILES + _LEAST_CONNECTIONS
    if logs.is_dir():
        for folder in logs.iterdir():
            needed += 1 + sum(1 for _ in folder.glob("*.log"))
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise UsageError(
            f"the limit of open files is {limit}, and this broker needs at least {needed} for its"
            f" logs and {_LEAST_CONNECTIONS} connections",
            fix=f"raise it with `ulimit -n {needed}` or more (systemd: LimitNOFILE=), and leave"
            f" room for more connections and segments",
        )


def few_left(descriptor: int) -> bool:
    """Return whether only reserved files are left after `descriptor`, the lowest free one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and descriptor >= limit - RESERVED_FILES


def check_enough() -> None:
    """Raise OSError if only reserved files are left."""
    descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(descriptor)
    if few_left(descriptor):
        raise OSError(
            errno.EMFILE, f"{os.strerror(errno.EMFILE)}; the last {RESERVED_FILES} are kept"
        )
