"""The reconciler as a service: follows the topic, looks at what is wrong, tells, tidies up.

Rules: a broker, registry or database that is away is waited for, and nothing is lost meanwhile:
the positions are in the store. What is told and shown is as of the last look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import OperationalError

from headworks._audit.alerts import Post, tell
from headworks._audit.findings import Thresholds, findings
from headworks._audit.metrics import Metrics, look
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._audit.store.retention import Kept, tidy
from headworks.errors import UnreachableError

__all__ = ["Running"]

_log = logging.getLogger("headworks.audit")
_AGAIN = 2.0
_TIDY_EVERY = 3600.0


@dataclass(slots=True)
class Running:
    """Runs until `stop` is set; `post` is where alerts go."""

    reconciler: Reconciler
    store: AuditStore
    metrics: Metrics
    thresholds: Thresholds
    kept: Kept
    post: Post | None
    look_every: float
    now: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    _due: float = field(default=0.0, init=False)
    _tidy_due: float = field(default=0.0, init=False)

    def run(self, stop: threading.Event) -> None:
        """Follow the topic."""
        while not stop.is_set():
            try:
                self.reconciler.follow(stop, self._after_batch)
            except (UnreachableError, OperationalError) as error:
                _log.warning("the audit waits: %s", error)
                stop.wait(_AGAIN)

    def _after_batch(self, new: int) -> None:
        self.metrics.increments += new
        self.metrics.progress = self.reconciler.progress
        if time.monotonic() >= self._due:
            self._look()
            # A look at a large store takes its time; most of it belongs to the topic.
            self._due = time.monotonic() + self.look_every
        if time.monotonic() >= self._tidy_due:
            tidy(self.store, self.now(), self.kept)
            self._tidy_due = time.monotonic() + _TIDY_EVERY

    def _look(self) -> None:
        now = self.now()
        found = findings(self.store, now, self.thresholds)
        self.metrics.last = look(self.store, now, found)
        if self.post is not None:
            tell(self.store, found, now, self.post)
