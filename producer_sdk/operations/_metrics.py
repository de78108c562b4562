"""Counters and gauges of a service, sent as MetricSample events once an interval.

Rules: counting is a dictionary lookup under a lock, and sends no message. The sample of a counter
is the amount added since the last sample, so samples can be summed. The number of series is
bounded: `headworks.metrics.dropped` counts the values that do not fit. `close` sends the rest, and
so does the exit of the interpreter. A forked child starts with no counts: its parent sends its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime

from producer_sdk.operations._event import MetricKind, MetricSample
from producer_sdk.operations._logs import EventSender

_log = logging.getLogger("headworks.producer")
_DROPPED = "headworks.metrics.dropped"
Series = tuple[MetricKind, str, tuple[tuple[str, str], ...]]


class Metrics:
    """Counts for `application`; sends by `producer` every `every` seconds and at `close`."""

    def __init__(
        self,
        producer: EventSender,
        *,
        application: str,
        every: float = 60.0,
        most_series: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._producer = producer
        self._application = application
        self._host = socket.gethostname()
        self._most = most_series
        self._clock = clock
        self._lock = threading.Lock()  # guards the two attributes below
        self._values: dict[Series, float] = {}  # since the last report
        self._since = clock()  # the time of the last report
        self._every = every
        self._run()
        _open.add(self)

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        series = (MetricKind.COUNTER, name, tuple(sorted(labels.items())))
        with self._lock:
            if self._fits(series):
                self._values[series] = self._values.get(series, 0) + by

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        series = (MetricKind.GAUGE, name, tuple(sorted(labels.items())))
        with self._lock:
            if self._fits(series):
                self._values[series] = value

    def report(self) -> int:
        """Send the values since the last report; return how many samples were queued."""
        with self._lock:
            values, self._values = self._values, {}
            since, self._since = self._since, self._clock()
            until = self._since
        return sum(
            self._producer.send(
                MetricSample(
                    at=datetime.fromtimestamp(until, UTC),
                    name=name,
                    kind=kind,
                    value=value,
                    labels=dict(labels),
                    interval_ms=max(0, round((until - since) * 1000)),
                    host=self._host,
                    application=self._application,
                )
            )
            for (kind, name, labels), value in values.items()
        )

    def close(self) -> None:
        """Send the rest and stop; the producer stays open."""
        self._stopping.set()
        self._thread.join()
        self._report_safely()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="headworks-metrics", daemon=True)
        self._thread.start()

    def _after_fork(self) -> None:
        """Start again in a forked child, in which nobody may hold the old lock any more."""
        self._lock = threading.Lock()
        self._values, self._since = {}, self._clock()
        if not self._stopping.is_set():
            self._run()

    def _fits(self, series: Series) -> bool:
        """Return whether there is room for a series; count the drop if not."""
        if series in self._values or len(self._values) < self._most:
            return True
        dropped: Series = (MetricKind.COUNTER, _DROPPED, ())
        self._values[dropped] = self._values.get(dropped, 0) + 1
        return False

    def _serve(self) -> None:
        while not self._stopping.wait(self._every):
            self._report_safely()

    def _report_safely(self) -> None:
        try:
            self.report()
        except Exception:
            _log.exception("metrics could not be sent")


_open: weakref.WeakSet[Metrics] = weakref.WeakSet()


def _restart_after_fork() -> None:
    for metrics in list(_open):
        metrics._after_fork()


def _close_at_exit() -> None:
    for metrics in list(_open):
        if not metrics._stopping.is_set():
            metrics.close()


os.register_at_fork(after_in_child=_restart_after_fork)
# The producers are closed after this, because their module was imported before.
atexit.register(_close_at_exit)
