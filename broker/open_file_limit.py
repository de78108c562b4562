"""The limit of open files, and the last of them, which are reserved.

Rule: a new connection, and a partition that is being opened, never get a reserved file. Partitions
that are served need them: a log that cannot open its folder to flush the name of a segment cannot
be written any more.
"""

from __future__ import annotations

import errno
import os
import resource

__all__ = ["RESERVED_FILES", "check_enough", "few_left", "raise_limit"]

RESERVED_FILES = 64


def raise_limit() -> None:
    """Raise the limit as far as the system allows. Each segment and connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
