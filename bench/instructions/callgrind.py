"""A process under valgrind's callgrind, and what a call costs it in instructions.

Rules:

- A cost is the slope between few and many calls, so start-up and fixed work cancel out.
- The work of an idle process (timers) is measured first and subtracted by the time that passed.
- Instructions are counted during the calls alone, because a counting process is 50 times slower.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headworks.errors import UnreachableError

_IDLE_SECONDS = 5.0
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)


def under_callgrind(command: Sequence[str], folder: Path) -> list[str]:
    """Return the command that runs `command` under callgrind, which counts nothing yet."""
    return [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        "--separate-threads=yes",
        "--fair-sched=yes",
        "--quiet",
        f"--callgrind-out-file={folder}/callgrind.%p",
        *command,
    ]


class CountedProcess:
    """A process that runs under callgrind and writes its counts into `folder`."""

    def __init__(self, pid: int, folder: Path, *, main_thread_only: bool) -> None:
        self._pid = pid
        self._files = f"callgrind.{pid}.{{}}" + ("-01" if main_thread_only else "-*")
        self._folder = folder
        self._dumps = 0  # so far
        self._idle_rate = 0.0  # instructions per second without a call
        self._control("-i=on")
        self._idle_rate = self._count(time.sleep, _IDLE_SECONDS) / _IDLE_SECONDS
        self._control("-i=off")

    def cost(self, call: Callable[[int], object], few: int, many: int) -> float:
        """Return the instructions of one more in `call(count)`, between `few` and `many`."""
        call(few)
        self._control("-i=on")
        call(few)  # callgrind translates the code once more
        less = self._count(call, few)
        more = self._count(call, many)
        self._control("-i=off")
        return (more - less) / (many - few)

    def _count(self, call: Callable[[Any], object], given: float) -> float:
        self._control("-z")
        began = time.monotonic()
        call(given)
        seconds = time.monotonic() - began
        self._control("-d")
        self._dumps += 1
        files = self._folder.glob(self._files.format(self._dumps))
        found = [_TOTALS.search(path.read_text(errors="replace")) for path in files]
        return sum(int(each[1]) for each in found if each) - self._idle_rate * seconds

    def _control(self, option: str) -> None:
        command = ["callgrind_control", option, str(self._pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or "OK" not in done.stdout:
            raise UnreachableError(f"callgrind_control failed: {done.stdout}{done.stderr}")
