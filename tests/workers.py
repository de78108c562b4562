"""How many workers run the tests, and which of them gets which module.

Tests wait for servers more than they compute: a module that starts some needs a third of a quick
core. So `-n auto` is seven workers on two quick cores: with five, the suite took 583 s, with seven
468 s. Slow cores get five, because tests with time limits fail where everybody computes. Modules
that share a Spark session go to one worker. A session with its HiveServer2 costs a worker about ten
seconds of a core, whatever it tests. Every other module is a unit of its own (`--dist loadfile`),
in the order of `tests.lengths`.

Rule: a module shares the session if one of its tests or fixtures takes `spark` or `hive`.
"""

from __future__ import annotations

import os
import re
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

_MAX_WORKERS = 16
_LOOPS = 100_000
_QUICK_SECONDS = 0.0008  # for as many; a quick core of 2026 needs 0.0005
_TAKES_SESSION = re.compile(r"^def \w+\([^)]*\b(?:spark|hive): ", re.MULTILINE)
_SESSION = "tests/hadoop_loader: one Spark session"


def worker_count(cores: int, memory_gb: int, *, quick: bool) -> int:
    """Return the number of workers that keep these cores busy; each needs a gigabyte."""
    wanted = cores * 7 // 2 if quick else cores * 5 // 2
    return max(2, min(wanted, memory_gb, _MAX_WORKERS))


def is_quick() -> bool:
    """Return whether a core of this machine is a quick one. A wrong answer costs only time."""
    return min(timeit.repeat("pass", repeat=5, number=_LOOPS)) < _QUICK_SECONDS


def memory_gb() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30


def modules_with_session(root: Path) -> Iterator[str]:
    """Yield the modules that share a session, by their path below `root`."""
    for path in sorted((root / "tests" / "hadoop_loader").glob("test_*.py")):
        if _TAKES_SESSION.search(path.read_text(encoding="utf-8")):
            yield path.relative_to(root).as_posix()


def unit_of(module: str, with_session: frozenset[str]) -> str:
    """Return the name of the unit that a worker gets as a whole."""
    return _SESSION if module in with_session else module


class SharedSessionScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Hands out whole modules, and those with a Spark session as one."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        self._with_session = frozenset(modules_with_session(config.rootpath))

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(super()._split_scope(nodeid), self._with_session)
