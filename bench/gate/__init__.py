"""The gate: `headworks schema check` over a large catalog, with the history of every file in git.

The repository is real, with one commit for each few files. Every version counts, because the level
is transitive. There is no peer that checks the history of files; the bar is absolute.
"""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

from bench.frame import Bench
from bench.gate.repository import Size, create
from headworks.errors import FindingsError

TITLE = "The gate: a catalog of 2,000 schemas against git"
US = "headworks"
BAR_SECONDS = 5.0


def run(bench: Bench) -> None:
    """Measure everything."""
    few, many = Size(2_000, 5), Size(2_000, 20)
    for size in [few] if bench.quick else [few, many]:
        bench.say(f"creating a repository of {size}")
        create(bench.folder / str(size.versions), size)
    for _ in bench.rounds(full=3):
        for size in [few] if bench.quick else [few, many]:
            _check(bench, size)
    bench.bar(
        f"check of {few}",
        at_most=BAR_SECONDS,
        got=bench.median(f"check of {few}", US),
        unit="s",
    )


def _check(bench: Bench, size: Size) -> None:
    """Run the command as users do, and count the CPU time of its git processes too."""
    folder = bench.folder / str(size.versions)
    before, began = _cpu(), time.perf_counter()
    command = [sys.executable, "-P", "-m", "headworks._cli", "schema", "check", "schemas"]
    command += ["--against", "git:main", "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode != 0 or done.stdout.count('"compared with') < size.schemas:
        raise FindingsError(f"the check of {folder} failed: {done.stderr}")
    spent = _cpu() - before
    bench.record(f"check of {size}", US, seconds, "s", cpu=spent, cpu_unit="CPU s")


def _cpu() -> float:
    times = psutil.Process().cpu_times()
    return times.children_user + times.children_system
