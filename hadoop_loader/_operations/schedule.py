"""Loading again and again: one run after the other, whatever happens to any of them.

Rules:

- A run is due every `pause` seconds, counted from the first. One that takes longer makes the next
  one begin at once: runs never overlap, and none is skipped for ever, because a load takes
  everything since the last commit.
- A run that fails is told, and the next one is due as ever. If the session itself is dead (its JVM
  was killed), it is opened anew, also when there is nothing to load: it may be serving.
- A dead session that cannot be closed is no reason to stop either.
- Asked to stop, it finishes the run that it is in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from hadoop_loader._commit.report import LoadReport

__all__ = ["RunListener", "ScheduledLoader", "load_every"]


class ScheduledLoader(Protocol):
    """An open warehouse."""

    def load(self) -> LoadReport:
        """Load everything that is new."""
        ...

    def alive(self) -> bool:
        """Whether another load makes sense in this session."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class RunListener(Protocol):
    """Who hears of runs."""

    def loaded(self, report: LoadReport) -> None:
        """A run is over."""
        ...

    def failed(self, error: Exception, in_a_row: int) -> None:
        """A run failed, as `in_a_row - 1` did before it."""
        ...


def load_every(
    pause: float,
    open_: Callable[[], ScheduledLoader],
    told: RunListener,
    stop: threading.Event,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Load until `stop` is set; `open_` opens the warehouse, now and when its session has died."""
    loader: ScheduledLoader | None = None
    failed = 0
    due = clock()
    try:
        while not stop.is_set():
            try:
                loader = _while_alive(loader, told, failed) or open_()
                told.loaded(loader.load())
                failed = 0
            except Exception as error:  # whatever failed, the next run may not
                failed += 1
                told.failed(error, failed)
                loader = _while_alive(loader, told, failed)
            due = max(due + pause, clock())
            stop.wait(max(0.0, due - clock()))
    finally:
        if loader is not None:
            loader.close()


def _while_alive(
    loader: ScheduledLoader | None, told: RunListener, failed: int
) -> ScheduledLoader | None:
    """The loader, or None after it was closed because its session is dead."""
    if loader is None or loader.alive():
        return loader
    try:
        loader.close()
    except Exception as error:  # it is given up in any case
        told.failed(error, failed)
    return None
