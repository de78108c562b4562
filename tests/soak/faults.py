"""A broker on a disk that fails on demand.

`python -m tests.soak.faults FOLDER ARGUMENTS...` runs `headworks ARGUMENTS...`. While FOLDER holds
a file named

- `full`: nothing can be written to a log, and of what is tried half is written first; nor can a
  folder be made;
- `broken`: nothing can be flushed.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__: list[str] = []


def _inject(folder: Path) -> None:
    full, broken = folder / "full", folder / "broken"
    really_write, really_sync = os.pwritev, os.fdatasync
    really_make_folder = os.mkdir

    def write(fd: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
        if full.exists():
            half = b"".join(buffers)
            really_write(fd, [half[: len(half) // 2]], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really_write(fd, buffers, offset, flags)

    def make_folder(path: str, mode: int = 0o777) -> None:
        if full.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        really_make_folder(path, mode)

    def sync(fd: int) -> None:
        if broken.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        really_sync(fd)

    for name, function in {
        "pwritev": write,
        "fdatasync": sync,
        "mkdir": make_folder,
    }.items():
        setattr(os, name, function)


if __name__ == "__main__":
    _inject(Path(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    from cli.main import run

    run()
