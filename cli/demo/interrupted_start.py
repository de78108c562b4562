"""Ctrl-C while Spark starts: the demo notices it, and kills Spark's JVM, so that it ends at once.

Without this, the demo would wait until Spark has started, only to stop it. The JVM holds nothing
yet but a folder that the demo deletes. On an installation, where it makes databases, it is waited
for.

The system may deliver the signal to any thread. Python handles it in the main thread alone, which
does not learn of it while it waits for a lock. So the main thread waits in slices.
"""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from headworks import _system_calls

_TURN_SECONDS = 0.1
_SLICE_SECONDS = 0.5
_SPARK = (b"spark-submit", b"SparkSubmit")


def opened(opening: Future[Any]) -> Any:
    """Return the result of `opening` when it has ended; a signal is handled meanwhile."""
    while not opening.done():
        wait([opening], _SLICE_SECONDS)
    return opening.result()


def kill_starting_jvm(opening: Future[Any]) -> None:
    """Kill the JVM that `opening` starts, until `opening` has ended.

    On a system without /proc it waits until Spark has started.
    """
    while not opening.done():
        for process in starting_jvms():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_TURN_SECONDS)


def starting_jvms(processes: Path = _system_calls.PROC) -> list[int]:
    """Return the children of this process that are Spark's launcher or its JVM."""
    found = []
    for folder in processes.glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[1]
            command = (folder / "cmdline").read_bytes()
            if int(parent) == os.getpid() and any(name in command for name in _SPARK):
                found.append(int(folder.name))
    return found
