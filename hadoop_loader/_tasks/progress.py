"""How far the tasks of a load are, for whoever waits: a number in a hidden file of each attempt.

Rules: it decides nothing and is never durable; a retried attempt may make it run ahead, so what is
told is never more than everything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hadoop_loader._storage.filesystem import AnyPath

__all__ = ["ProgressFile", "report_progress"]

_NAME = ".messages"
_INTERVAL_SECONDS = 0.25
# Where writing it down takes long, it is done the less often: a twentieth of the time at most.
_COST_FACTOR = 20


class ProgressFile:
    """Counts messages of one attempt in its staging folder."""

    def __init__(self, folder: AnyPath) -> None:
        self._path = folder / _NAME
        self._messages = 0
        self._due = 0.0

    def add(self, messages: int) -> None:
        """So many more; nobody looks more often than it is written down."""
        self._messages += messages
        now = time.monotonic()
        if now < self._due:
            return
        self._path.write_text(str(self._messages), encoding="ascii")
        took = time.monotonic() - now
        self._due = now + max(_INTERVAL_SECONDS, _COST_FACTOR * took)


@contextmanager
def report_progress(
    staging: AnyPath, total: int, report: Callable[[float], None] | None
) -> Iterator[None]:
    """Tell the share of `total` messages that is done, while the block runs."""
    if report is None or total <= 0:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_INTERVAL_SECONDS):
            report(min(1.0, _messages(staging) / total))

    watcher = threading.Thread(target=watch, name="meter", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _messages(staging: AnyPath) -> int:
    found = 0
    for path in staging.glob(f"*/{_NAME}"):
        try:
            found += int(path.read_text(encoding="ascii") or 0)
        except (OSError, ValueError):
            continue
    return found
