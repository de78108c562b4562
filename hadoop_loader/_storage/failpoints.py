"""Failpoints: the process kills itself at a named step, so that tests can prove recovery.

`HEADWORKS_CRASH_AT=STEP` ends the loader with SIGKILL when it reaches the step, and
`HEADWORKS_CRASH_AT=STEP:N` the N-th time. STEPS are in order. RARE_STEPS are reached only if
something must be defined again or removed, if a table has failed, or with Iceberg. TASK_STEPS are
reached in Spark's Python workers: Spark runs the task again, and gives up after a few attempts.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

from headworks.errors import UsageError

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
    "held",
    "applied",
)
RARE_STEPS = ("restoring", "removing", "failed", "publishing", "published")
TASK_STEPS = ("reading", "writing", "rewriting")
StepHook = Callable[[str], None]
_ALL_STEPS = (*STEPS, *RARE_STEPS, *TASK_STEPS)
_hits: Counter[str] = Counter()  # how often the wanted step was reached


def failpoint(step: str) -> None:
    """Kill this process if the environment names `step`; UsageError if it names no known step."""
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
