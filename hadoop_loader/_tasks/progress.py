"""How far the tasks of a load are: a number in a hidden file of each attempt.

Rules: nothing depends on it, and it is never synced. A retried attempt may count messages twice, so
the reported share is cut to 100%.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hadoop_loader._storage.filesystem import AnyPath

_NAME = ".messages"
_INTERVAL_SECONDS = 0.25
# If a write takes long, the next one waits: writes take at most a twentieth of the time.
_COST_FACTOR = 20


class ProgressFile:
    """Counts the messages of one attempt in its staging folder."""

    def __init__(self, folder: AnyPath) -> None:
        self._path = folder / _NAME
        self._messages = 0  # counted so far
        self._due = 0.0  # earliest time of the next write

    def add(self, messages: int) -> None:
        """Count messages; the file is written at most every 0.25 s."""
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
    """Report the share of `total` messages that is done, while the block runs."""
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
