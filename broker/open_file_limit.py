"""How many files may be open, and the last ones, which are kept.

Rule: a connection that comes, and a partition that is opened, get none of the last few, and may
come again. What is served needs them: a log that cannot open its folder once more, to put a
segment's name on disk, must not be written any more.
"""

from __future__ import annotations

import errno
import os
import resource

__all__ = ["RESERVED_FILES", "check_enough", "few_left", "raise_limit"]

RESERVED_FILES = 64


def raise_limit() -> None:
    """Every segment and connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def few_left(descriptor: int) -> bool:
    """Whether only kept ones are left after this one, which was the lowest number free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and descriptor >= limit - RESERVED_FILES


def check_enough() -> None:
    """OSError if only kept ones are left."""
    descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(descriptor)
    if few_left(descriptor):
        raise OSError(
            errno.EMFILE, f"{os.strerror(errno.EMFILE)}; the last {RESERVED_FILES} are kept"
        )
