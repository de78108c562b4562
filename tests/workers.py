"""How many workers run the tests, and which of them gets which module.

Tests wait for servers more than they compute: a module that starts some needs a third of a core. So
`-n auto` is five workers on two cores. Modules that share a Spark session go to one worker. A
session with its HiveServer2 costs a worker about ten seconds of a core, whatever it tests. Every
other module is a unit of its own (`--dist loadfile`), in the order of `tests.lengths`.

Rule: a module shares the session if one of its tests or fixtures takes `spark` or `hive`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

_MAX_WORKERS = 16
_TAKES_SESSION = re.compile(r"^def \w+\([^)]*\b(?:spark|hive): ", re.MULTILINE)
_SESSION = "tests/hadoop_loader: one Spark session"


def worker_count(cores: int) -> int:
    """Return the number of workers that keep these cores busy."""
    return max(2, min(cores * 5 // 2, _MAX_WORKERS))


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
