"""The machine of the measurements, so that a reader can judge them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

_AT_REST = 5.0  # per cent of all processors


def describe(folder: Path) -> dict[str, Any]:
    """The machine, the load that others put on it, and the version that is measured."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "free_disk_gb": round(shutil.disk_usage(folder).free / 1e9),
        "load_before": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": _version(),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version() -> str:
    """The commit that is measured, with `-dirty` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    here = Path(__file__).parent
    try:
        found = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def touch_pages(folder: Path, size: int) -> None:
    """Give the page cache memory that was used before: `size` bytes are written and removed.

    In a virtual machine, the first use of a page may cost ten times as much as the second, because
    the host has to find it. The first writer would pay for all others.
    """
    path = folder / "touched"
    block = os.urandom(1 << 20)
    with path.open("wb") as file:
        for _ in range(0, size, len(block)):
            file.write(block)
    path.unlink()


def let_others_rest(patience: float = 15.0) -> None:
    """Wait until nearly nothing runs, at most `patience` seconds: what a server does after its turn
    (collecting garbage, compiling, compacting) must not be paid for by the next one.
    """
    end = time.monotonic() + patience
    while psutil.cpu_percent(interval=0.5) > _AT_REST and time.monotonic() < end:
        pass
