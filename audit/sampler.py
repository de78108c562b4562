"""The thread that samples log ends and group lags once a minute, beside the reconciler.

Rules: it never delays the reconciler. A broker or database that does not answer leaves a gap, and
one warning until it answers again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException
from sqlalchemy.exc import SQLAlchemyError

from headworks._audit import queries
from headworks._audit.log_bounds import LogBoundsReader
from headworks._audit.store import AuditStore
from headworks._audit.store.samples import SampleKind, SeriesKey, add_samples
from headworks.errors import HeadworksError
from headworks.groups import GroupDescription, Groups

_log = logging.getLogger("headworks.audit")
_INTERVAL_SECONDS = 60.0
_AGE_SECONDS = 5.0
_Measure = Callable[[], Mapping[SeriesKey, float]]


class BrokerMeasure:
    """Asks the brokers (and ZooKeeper, if it is given) for log ends and group lags."""

    def __init__(self, store: AuditStore, bootstrap: str, zookeeper: str | None) -> None:
        self._store = store
        self._bootstrap, self._zookeeper = bootstrap, zookeeper
        self._log_bounds = LogBoundsReader(bootstrap)
        self._groups: Groups | None = None  # opened at the first measurement

    def __call__(self) -> dict[SeriesKey, float]:
        """Return the sample of every series. Raises UnreachableError or KafkaException."""
        if self._groups is None:
            self._groups = Groups(self._bootstrap, self._zookeeper)
        groups = self._groups.described(age_timeout=_AGE_SECONDS)
        topics = {p.topic for group in groups for p in group.positions}
        topics |= set(queries.topics(self._store))
        found = group_samples(groups)
        for topic, bounds in self._log_bounds(sorted(topics)).items():
            if bounds:
                found[SampleKind.LOG_END, topic] = sum(end for _, end in bounds.values())
        return found


def group_samples(groups: list[GroupDescription]) -> dict[SeriesKey, float]:
    """Return the lag of each group, and the age of its oldest unread message if it is known."""
    found: dict[SeriesKey, float] = {}
    for group in groups:
        lags = [p.lag for p in group.positions if p.lag is not None]
        ages = [p.behind_ms for p in group.positions if p.behind_ms is not None]
        if lags:
            found[SampleKind.GROUP_LAG, group.name] = sum(lags)
            if ages or not any(lags):
                found[SampleKind.GROUP_AGE, group.name] = max(ages, default=0)
    return found


class Sampler:
    """Adds a sample of `measure` to the store once a minute, until `stop` is set."""

    def __init__(
        self,
        store: AuditStore,
        measure: _Measure,
        *,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self._measure = measure
        self._now = now
        self._failed = False  # the last sample

    def start(self, stop: threading.Event) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, args=(stop,), name="sampler", daemon=True).start()

    def sample(self) -> None:
        """Take one sample. A failure is logged, once until it works again."""
        try:
            add_samples(self._store, self._now(), self._measure())
            self._failed = False
        except (HeadworksError, KafkaException, SQLAlchemyError) as error:
            if not self._failed:
                _log.warning("no sample for the charts: %s", error)
            self._failed = True

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self.sample()
            except Exception:  # a fault of ours must not end the charts until a restart
                _log.exception("sampling for the charts failed")
            stop.wait(_INTERVAL_SECONDS)
