"""The loader as a service: a warehouse that is reopened when its session ends, and its metrics.

Rules: a failed run is logged and counted, and the next run finishes its work. SIGTERM or Ctrl-C
ends the service after the run in progress. A metrics file that cannot be written is logged.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hadoop_loader._commit.report import LoadReport
from hadoop_loader._operations.metrics import LoaderMetrics
from hadoop_loader._operations.schedule import load_every, open_when_free
from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._storage.object_lease import WarehouseInUseError
from headworks._server.metrics_page import MetricsEndpoint
from headworks._stop_event import StopEvent
from headworks.errors import HeadworksError, UnreachableError, UsageError

_LOG = logging.getLogger("hadoop_loader._operations.schedule")
_CHECK_SECONDS = 5.0
_Progress = Callable[[str, float | None], None] | None


class _Warehouse(Protocol):
    def load(self, progress: _Progress) -> LoadReport: ...

    def alive(self) -> bool: ...

    def close(self) -> None: ...


W = TypeVar("W", bound=_Warehouse)


class RunRecorder:
    """Passes each report to `report`, and counts runs in metrics after `measure`."""

    def __init__(self, report: Callable[[LoadReport], None], metrics_file: Path | None) -> None:
        self._report = report
        self._file = metrics_file  # written after each run
        self._metrics: LoaderMetrics | None = None
        self._waits_for = ""  # the error of the last look at the lock, while this loader stands by

    def measure(self, root: AnyPath, endpoint: MetricsEndpoint | None) -> str | None:
        """Count runs of the warehouse at `root`. Return the URL of the page, if it has one.

        Raises UsageError if the page cannot be served or the file cannot be written.
        """
        self._metrics = LoaderMetrics(root)
        if self._file is not None:
            self._metrics.write(self._file)
        return None if endpoint is None else self._metrics.serve(endpoint)

    def loaded(self, report: LoadReport) -> None:
        """Record a run that succeeded."""
        self._report(report)
        if self._metrics is not None:
            self._metrics.loaded(report)
            self._write()

    def failed(self, error: Exception, in_a_row: int) -> None:
        """Log and record a run that failed, as the `in_a_row - 1` runs before it did."""
        again = f" ({in_a_row} times in a row now)" if in_a_row > 1 else ""
        _LOG.error(
            "the run failed%s, and the next one finishes its work: %s",
            again,
            error if isinstance(error, HeadworksError) else repr(error),
            extra={"failed_in_a_row": in_a_row},
            exc_info=None if isinstance(error, HeadworksError) else error,
        )
        self.count_failure()

    def waiting(self, error: WarehouseInUseError) -> None:
        """Record that another loader holds the warehouse; log it once for each holder."""
        if error.message != self._waits_for:
            self._waits_for = error.message
            _LOG.info("standing by: %s; this loader takes over when that one ends", error.message)
        self._stand_by(waits=True)

    def look_failed(self, error: Exception) -> None:
        """Log, once for each error, that a look at the warehouse failed."""
        text = error.message if isinstance(error, HeadworksError) else repr(error)
        if text != self._waits_for:
            self._waits_for = text
            _LOG.warning("standing by: a look at the warehouse failed, and is repeated: %s", text)

    def took_over(self) -> None:
        """Record that the warehouse is this loader's."""
        if self._waits_for:
            self._waits_for = ""
            _LOG.info("the warehouse is free: this loader takes over")
        self._stand_by(waits=False)

    def _stand_by(self, *, waits: bool) -> None:
        if self._metrics is not None:
            self._metrics.stand_by(waits=waits)
            self._write()

    def count_failure(self) -> None:
        """Record a run that failed, without logging it."""
        if self._metrics is not None:
            self._metrics.failed()
            self._write()

    def _write(self) -> None:
        if self._metrics is None or self._file is None:
            return
        try:
            self._metrics.write(self._file)
        except UsageError as error:  # the file could be written when the loader started
            _LOG.error("%s", error)


class WarehouseService(Generic[W]):
    """A warehouse that `open_` opens again after its session ended; `opened` gets each one."""

    def __init__(
        self,
        open_: Callable[[], W],
        opened: Callable[[W], None],
        progress: Callable[[], AbstractContextManager[_Progress]],
    ) -> None:
        self._open = open_
        self._opened = opened
        self._progress = progress
        self._warehouse: W | None = None  # the open one

    def open(self) -> WarehouseService[W]:
        """Open the warehouse, unless it is open."""
        if self._warehouse is None:
            self._warehouse = self._open()
            self._opened(self._warehouse)
        return self

    def load(self) -> LoadReport:
        """Load everything that is new."""
        assert self._warehouse is not None
        with self._progress() as progress:
            return self._warehouse.load(progress)

    def alive(self) -> bool:
        """Return whether the session still works."""
        return self._warehouse is not None and self._warehouse.alive()

    def wait_until_dead(self) -> None:
        """Wait while the session works, then raise UnreachableError."""
        while self.alive():
            time.sleep(_CHECK_SECONDS)
        raise UnreachableError(
            "nothing is served any more: Spark's JVM has ended, killed or out of memory, or the "
            "warehouse is another loader's now",
            fix="see what ended it, and run again; with --every the loader restarts it by itself",
        )

    def close(self) -> None:
        """Close the warehouse, if it is open."""
        closing, self._warehouse = self._warehouse, None
        if closing is not None:
            closing.close()


def load_until_signal(
    interval_seconds: float,
    service: WarehouseService[Any],
    runs: RunRecorder,
    *,
    standby: bool = False,
) -> None:
    """Load at an interval until SIGTERM or Ctrl-C, and finish the run in progress.

    `standby`: wait while another loader holds the warehouse. Raises what opening raises otherwise.
    """
    stop = StopEvent()

    def open_() -> WarehouseService[Any] | None:
        opened = open_when_free(service.open, runs.waiting, runs.look_failed, stop)
        if opened is not None:
            runs.took_over()
        return opened

    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        if not standby:
            load_every(interval_seconds, service.open, runs, stop)
        elif open_() is not None:  # an error of the first opening ends the command
            load_every(interval_seconds, open_, runs, stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
