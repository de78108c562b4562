"""The gate: `headworks schema check` over a large catalog, with the history of every file in git.

The repository is real, with one commit for each few files. Every version counts, because the level
is transitive. There is no peer that checks the history of files; the bar is absolute. So is the one
of a change that is tried on messages.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from bench.frame import Bench
from bench.gate.repository import Size, create
from bench.gate.trial import MESSAGES, proposal
from headworks.errors import FindingsError

TITLE = "The gate: a catalog of 2,000 schemas against git"
US = "headworks"
BAR_SECONDS = 5.0
TRIED = f"check of a change on {MESSAGES:,} messages"


def run(bench: Bench) -> None:
    """Measure everything."""
    few, many = Size(2_000, 5), Size(2_000, 20)
    for size in [few] if bench.quick else [few, many]:
        bench.say(f"creating a repository of {size}")
        create(bench.folder / str(size.versions), size)
    bench.say(f"producing {MESSAGES:,} messages")
    with proposal(bench.folder / "trial") as asked:
        for _ in bench.rounds(full=3):
            for size in [few] if bench.quick else [few, many]:
                _check(bench, size)
            _try(bench, asked)
    bench.bar(
        f"check of {few}",
        at_most=BAR_SECONDS,
        got=bench.median(f"check of {few}", US),
        unit="s",
    )
    bench.bar(TRIED, at_most=2.0, got=bench.median(TRIED, US), unit="s")


def _check(bench: Bench, size: Size) -> None:
    """Check a catalog."""
    folder = bench.folder / str(size.versions)
    asked = ["schema", "check", "schemas", "--against", "git:main", "--format", "json"]
    told = _run(bench, f"check of {size}", asked, folder)
    if told.count('"compared with') < size.schemas:
        raise FindingsError(f"the check of {folder} compared too few schemas: {told[:500]}")


def _try(bench: Bench, asked: list[str]) -> None:
    """Try a change."""
    told = _run(bench, TRIED, asked, bench.folder)
    if f"tried on the newest {MESSAGES:,} messages of" not in told:
        raise FindingsError(f"the change was tried on too few messages: {told[:500]}")


def _run(bench: Bench, what: str, asked: list[str], folder: Path) -> str:
    """Run a command as users do, count the CPU time of its git processes too; return its output."""
    before, began = _cpu(), time.perf_counter()
    command = [sys.executable, "-P", "-m", "headworks._cli", *asked]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise FindingsError(f"{' '.join(asked)} failed: {done.stderr}")
    bench.record(what, US, seconds, "s", cpu=_cpu() - before, cpu_unit="CPU s")
    return done.stdout


def _cpu() -> float:
    times = psutil.Process().cpu_times()
    return times.children_user + times.children_system
