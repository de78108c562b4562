"""Repeated loads: one run after the other, even if some fail.

Rules:

- A run is due every `pause` seconds, counted from the first one. If a run overruns, the next starts
  immediately. Runs never overlap, and a late run loses nothing: a load takes everything since the
  last commit.
- A failed run is reported, and the next one is due as usual. If the session is dead (its JVM was
  killed), it is opened again, even if there is nothing to load: it may be serving.
- A dead session that cannot be closed stops nothing either.
- When it is asked to stop, it finishes the current run.
- A loader that stands by waits while another one holds the warehouse, and takes over when it ends.
  Only the lock decides which one loads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from hadoop_loader._commit.report import LoadReport
from hadoop_loader._storage.object_lease import WarehouseInUseError

_STANDBY_SECONDS = 5.0  # between looks at the lock


class ScheduledLoader(Protocol):
    """An open warehouse."""

    def load(self) -> LoadReport:
        """Load everything that is new."""
        ...

    def alive(self) -> bool:
        """Return whether the session still works."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


L = TypeVar("L", bound=ScheduledLoader)


class RunListener(Protocol):
    """Receives the outcome of every run."""

    def loaded(self, report: LoadReport) -> None:
        """Handle a run that succeeded."""
        ...

    def failed(self, error: Exception, in_a_row: int) -> None:
        """Handle a run that failed, as did the `in_a_row - 1` runs before it."""
        ...


def open_when_free(
    open_: Callable[[], L],
    waiting: Callable[[WarehouseInUseError], None],
    failed: Callable[[Exception], None],
    stop: threading.Event,
) -> L | None:
    """Open the warehouse as soon as no other loader holds it; None if `stop` is set before.

    `waiting` gets the error of every look at a warehouse in use. Once it has waited, a loader
    outlives every other error, which `failed` gets: a broker that restarts must not end it. Before,
    such an error is raised.
    """
    waited = False
    while not stop.is_set():
        try:
            return open_()
        except WarehouseInUseError as error:
            waited = True
            waiting(error)
        except Exception as error:
            if not waited:
                raise
            failed(error)
        stop.wait(_STANDBY_SECONDS)
    return None


def load_every(
    pause: float,
    open_: Callable[[], ScheduledLoader | None],
    listener: RunListener,
    stop: threading.Event,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Load until `stop` is set; `open_` opens the warehouse, at first and after a session died.

    It returns None if it was asked to stop meanwhile.
    """
    loader: ScheduledLoader | None = None
    failed = 0
    due = clock()
    try:
        while not stop.is_set():
            try:
                loader = _while_alive(loader, listener, failed) or open_()
                if loader is None:
                    return
                listener.loaded(loader.load())
                failed = 0
            except Exception as error:  # the next run may succeed
                failed += 1
                listener.failed(error, failed)
                loader = _while_alive(loader, listener, failed)
            due = max(due + pause, clock())
            stop.wait(max(0.0, due - clock()))
    finally:
        if loader is not None:
            loader.close()


def _while_alive(
    loader: ScheduledLoader | None, listener: RunListener, failed: int
) -> ScheduledLoader | None:
    """Return the loader, or None if its session was dead, after closing it."""
    if loader is None or loader.alive():
        return loader
    try:
        loader.close()
    except Exception as error:  # it is dropped in any case
        listener.failed(error, failed)
    return None
