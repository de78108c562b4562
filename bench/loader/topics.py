"""Whole loads of the same rows in few and in many topics, in turns.

Each number of topics has a broker, a registry, and a warehouse of its own, in a process of its own.
Minutes lie between measurements that are made one after another, and a machine that others use too
changes its speed in minutes. Loads that are compared are made in turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.frame import Bench
from headworks.errors import HeadworksError

_REPEATS = 3  # of the loads with a bar
_NAMES = {
    "new": "new tables, with their rows, of {}",
    "recent": "the same rows in {}",
    "week": "the same rows in {}, over a week",
    "nothing": "nothing new in {}",
}


def measure(bench: Bench, who: str, rows: int, counts: Sequence[int], folder: Path) -> None:
    """Load new tables, known ones, and nothing new, with so many topics in turns."""
    with ExitStack() as stack:
        loaders = {
            topics: stack.enter_context(_Loader(topics, rows, folder / f"topics-{topics}"))
            for topics in counts
        }
        repeated = ["recent"] * (1 if bench.quick else _REPEATS)
        for turn, kind in enumerate(("new", *repeated, "week", "nothing")):
            for topics in counts if turn % 2 else reversed(counts):
                seconds, phases = loaders[topics].load(kind)
                what = _NAMES[kind].format(_in(topics))
                bench.record(what, who, seconds, "s")
                if kind != "nothing":
                    for phase, took in phases.items():
                        bench.record(f"{what}: {phase}", who, took, "s")


def new_in(topics: int) -> str:
    """The name of a load of known tables."""
    return _NAMES["recent"].format(_in(topics))


def week_in(topics: int) -> str:
    """The name of a load of known tables, of events of a week."""
    return _NAMES["week"].format(_in(topics))


def nothing_in(topics: int) -> str:
    """The name of a load that finds nothing."""
    return _NAMES["nothing"].format(_in(topics))


def _in(topics: int) -> str:
    return f"{topics} topic{'s' * (topics > 1)}"


class _Loader:
    """A process with a warehouse of so many topics, which loads when it is told to."""

    def __init__(self, topics: int, rows: int, folder: Path) -> None:
        child = [sys.executable, "-m", "bench.loader.warehouse"]
        self._process = subprocess.Popen(
            [*child, str(topics), str(rows), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> _Loader:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def load(self, kind: str) -> tuple[float, dict[str, float]]:
        """Send rows and load them; return the seconds of the load, and of its phases."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{kind}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise HeadworksError("the process of a warehouse has ended: see its words above")
        found: dict[str, Any] = json.loads(line)
        return found["seconds"], found["phases"]
