"""The console script: finds Headworks' own parts whatever the caller's path holds.

Rules: the parts bear plain names (broker, registry, cli, ...), and a caller's PYTHONPATH may hold
modules of the same names. In a process that was started to run Headworks, those names mean ours;
nothing else about importing changes. Garbage is collected seldom there: what a server imports
stays, and to look through it after every 700 objects is a sixth of the time that it takes to start.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

__all__ = ["run"]

_HERE = str(Path(__file__).parent.parent)
_COLLECT_AFTER = 50_000  # new objects
_PARTS = frozenset({"audit", "broker", "ci", "cli", "console", "hadoop_loader", "registry"})


class _OurParts:
    """Finds the parts beside this package, before anything else is looked at."""

    @staticmethod
    def find_spec(
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if path is None and name in _PARTS:
            return PathFinder.find_spec(name, [_HERE], target)
        return None


def run() -> None:
    """Run the command line."""
    sys.meta_path.insert(0, _OurParts)
    gc.set_threshold(_COLLECT_AFTER)
    importlib.import_module("cli.main").run()


if __name__ == "__main__":
    run()
