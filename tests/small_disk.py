"""A file system that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools import miss, require


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[int], None]]:
    """A file system of 1 MiB at `folder`, and what makes it another size; for root alone."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    require("mount")
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        miss("mount")

    def resize(mebibytes: int) -> None:
        size = f"remount,size={mebibytes}m"
        subprocess.run(["mount", "-o", size, str(folder)], check=True)

    try:
        yield resize
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
