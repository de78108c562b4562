"""Fault injection: the process kills itself at a named step, so that tests can prove recovery.

`HEADWORKS_CRASH_AT=STEP` ends the loader with SIGKILL when it reaches the step; STEPS lists them
in order. `HEADWORKS_CRASH_AT=STEP:N` does so the N-th time the step is reached. RARE_STEPS are
reached where there is something to define again, or to remove. TASK_STEPS are reached in Spark's
Python workers: the worker dies, Spark runs its task again, and gives up.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

from headworks.errors import UsageError

__all__ = ["RARE_STEPS", "STEPS", "TASK_STEPS", "StepHook", "failpoint"]

STEPS = (
    "planned",
    "staged",
    "committing",
    "committed",
    "tables",
    "views",
    "renaming",
    "renamed",
    "partitions",
    "audit",
    "applied",
)
RARE_STEPS = ("restoring", "removing")
TASK_STEPS = ("reading", "writing", "rewriting")
StepHook = Callable[[str], None]
_ALL_STEPS = (*STEPS, *RARE_STEPS, *TASK_STEPS)
_hits: Counter[str] = Counter()


def failpoint(step: str) -> None:
    """Say that `step` is reached; it may be the last thing this process says."""
    wanted, _, count = os.environ.get("HEADWORKS_CRASH_AT", "").partition(":")
    if wanted and wanted not in _ALL_STEPS:
        raise UsageError(
            f"HEADWORKS_CRASH_AT={wanted} is not a step of a load",
            fix=f"use {', '.join(_ALL_STEPS)}",
        )
    if wanted != step:
        return
    _hits[step] += 1
    if _hits[step] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
