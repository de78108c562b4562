"""The reconciler as a service: it follows the topic, checks the store, sends alerts, and cleans up.

Rules: an unavailable broker, registry, or database is retried, and nothing is lost, because the
store has the positions. Alerts and metrics are as of the last check.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import OperationalError

from headworks._audit.alerts import SendAlert, send_alerts
from headworks._audit.findings import findings
from headworks._audit.metrics import AuditMetrics, take_snapshot
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._audit.store.evidence import save_read_until
from headworks._audit.store.retention import Retention, remove_expired
from headworks._audit.thresholds import Thresholds, save_check, save_thresholds
from headworks._audit.volumes import judge_volumes
from headworks.errors import UnreachableError

_log = logging.getLogger("headworks.audit")
_RETRY_SECONDS = 2.0
_REMOVAL_INTERVAL_SECONDS = 3600.0


@dataclass(slots=True)
class AuditService:
    """Runs until `stop` is set."""

    reconciler: Reconciler
    store: AuditStore
    metrics: AuditMetrics
    thresholds: Thresholds
    retention: Retention
    post: SendAlert | None  # sends alerts, if there is a webhook
    check_seconds: float  # between two checks of the store
    now: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    _next_check: float = field(default=0.0, init=False)  # by the monotonic clock
    _next_removal: float = field(default=0.0, init=False)  # of expired rows

    def run(self, stop: threading.Event) -> None:
        """Follow the topic until `stop` is set."""
        save_thresholds(self.store, self.thresholds)
        while not stop.is_set():
            try:
                self.reconciler.follow(stop, self._after_batch)
            except (UnreachableError, OperationalError) as error:
                _log.warning("the audit waits: %s", error)
                stop.wait(_RETRY_SECONDS)

    def _after_batch(self, new: int) -> None:
        self.metrics.increments += new
        self.metrics.progress = self.reconciler.progress
        if time.monotonic() >= self._next_check:
            self._check()
            # A check of a large store is slow, and reading the topic comes first.
            self._next_check = time.monotonic() + self.check_seconds
        if time.monotonic() >= self._next_removal:
            remove_expired(self.store, self.now(), self.retention)
            self._next_removal = time.monotonic() + _REMOVAL_INTERVAL_SECONDS

    def _check(self) -> None:
        self.reconciler.take_cut()
        now = self.now()
        save_check(self.store, now)
        save_read_until(self.store, self.reconciler.read_until)
        judge_volumes(self.store, now)
        found = findings(self.store, now, self.thresholds)
        self.metrics.last = take_snapshot(self.store, now, found)
        if self.post is not None:
            send_alerts(self.store, found, now, self.post)
