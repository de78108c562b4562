"""A broker on a disk that fails on demand.

`python -m tests.soak.faults FOLDER ARGUMENTS...` runs `headworks ARGUMENTS...`. While FOLDER holds
a file named

- `full`: nothing can be written to a log, and of what is tried half is written first; nor can a
  folder be made;
- `broken`: nothing can be flushed;
- `slow`: a flush takes two seconds;
- `nameless`: no folder can be flushed, nor a small file, so that no new name is surely on disk.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_SLOW_SECONDS = 2.0


def _inject(folder: Path) -> None:
    full, broken, nameless = folder / "full", folder / "broken", folder / "nameless"
    slow = folder / "slow"
    really_write, really_sync, really_name = os.pwritev, os.fdatasync, os.fsync
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
        if slow.exists():
            time.sleep(_SLOW_SECONDS)
        really_sync(fd)

    def name(fd: int) -> None:
        if nameless.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        really_name(fd)

    for function_name, function in {
        "pwritev": write,
        "fdatasync": sync,
        "fsync": name,
        "mkdir": make_folder,
    }.items():
        setattr(os, function_name, function)


if __name__ == "__main__":
    _inject(Path(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    from headworks._cli.main import run

    run()
