"""The cost of servers: CPU time and memory, of a process and all its children.

Rules: it only reads. A child that has ended counts through the parent that waited for it. The CPU
time of a living process comes from its own clock (nanoseconds), not from /proc (10 ms).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

from headworks.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds used so far, and bytes of memory held now."""

    cpu: float
    resident: int


class Usage:
    """The process `pid` and its descendants."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def now(self) -> Spent:
        """Return what they have used so far; UnreachableError if the process has ended."""
        cpu, resident = 0.0, 0
        try:
            children = self._process.children(recursive=True)
        except psutil.NoSuchProcess:
            raise UnreachableError(f"process {self._process.pid} has ended") from None
        for process in (self._process, *children):
            try:
                own = time.clock_gettime(_cpu_clock(process.pid))
                times = process.cpu_times()
                resident += process.memory_info().rss
            except (OSError, psutil.NoSuchProcess):  # it has just ended
                continue
            cpu += own + times.children_user + times.children_system
        return Spent(cpu, resident)


def _cpu_clock(pid: int) -> int:
    """Return the clock of clock_getcpuclockid(3) on Linux; Python offers it for threads only."""
    return (~pid << 3) | 2
