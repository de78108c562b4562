"""The metrics of one registry, in Prometheus' text format.

Rules:

- Labels come from the program, never from a request: route templates, methods, statuses, error
  codes, and rule ids. Their number is bounded, and they reveal no subject.
- Reads by id from memory increase one integer, which a scrape reads.
- A scrape queries the store, and only if the store has changed since the last one. If the store
  fails, the other metrics are still served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy.exc import SQLAlchemyError

import headworks
from headworks._registry.fast_reads import FastReads
from headworks._registry.model.refusals import ServiceError
from headworks._registry.worker_pools import WorkerPool

# The route label of a request that matches no route.
UNMATCHED = "none"
_PREFIX = "headworks_registry"
_BUCKET_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LOG = logging.getLogger(__name__)
_REGISTER_ROUTE = ("POST", "/subjects/{subject}/versions")


class RegistryMetrics:
    """The counters of one registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        requests = self._counter("requests", "requests answered", "method", "route", "status")
        seconds = Histogram(
            f"{_PREFIX}_request_seconds",
            "time to answer, without reads by id from memory",
            ["method", "route"],
            buckets=_BUCKET_SECONDS,
            registry=self._registry,
        )
        # Few, because a path that no route has and an unknown method have one name each.
        self._requests_of, self._seconds_of = cache(requests.labels), cache(seconds.labels)
        self.in_flight = Gauge(
            f"{_PREFIX}_requests_in_flight", "requests under way", registry=self._registry
        )
        self._registrations = self._counter(
            "registrations", "registrations asked for, dry runs included", "outcome"
        )
        self._refusals = self._counter("refusals", "answers by error code", "code")
        self._findings = self._counter(
            "incompatible", "registrations refused as incompatible, by each rule they broke", "rule"
        )
        self._store_errors = self._counter("store_errors", "requests that the store failed")
        self._failures = self._counter(
            "authentication_failures", "credentials that were not taken", "reason"
        )
        info = Gauge(f"{_PREFIX}_info", "the server", ["version"], registry=self._registry)
        info.labels(headworks.__version__).set(1)

    def watch(
        self,
        fast_reads: FastReads,
        pools: Mapping[str, WorkerPool],
        revision: Callable[[], int],
        totals: Callable[[], Mapping[str, int]],
    ) -> None:
        """Also report these numbers; `totals` is called again when `revision` has changed."""
        self._registry.register(_RegistryCollector(fast_reads, pools, revision, totals))

    def count_request(self, method: str, route: str, status: str, seconds: float) -> None:
        """Count a request that has been served."""
        self._requests_of(method, route, status).inc()
        self._seconds_of(method, route).observe(seconds)
        if (method, route) == _REGISTER_ROUTE:
            self._registrations.labels("registered" if status == "200" else "refused").inc()

    def count_refusal(self, error: ServiceError) -> None:
        """Count a refused request, by its error code and the rules that it broke."""
        self._refusals.labels(str(error.code)).inc()
        findings = error.extra.get("findings")
        for rule in {str(one["rule"]) for one in findings} if isinstance(findings, list) else ():
            self._findings.labels(rule).inc()

    def count_store_error(self) -> None:
        """Count a request that failed because the store failed."""
        self._store_errors.inc()

    def count_authentication_failure(self, reason: str) -> None:
        """Count refused credentials, by reason."""
        self._failures.labels(reason).inc()

    def exposition(self) -> tuple[bytes, str]:
        """Return all metrics in Prometheus' text format, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", meaning, labels, registry=self._registry)


class _RegistryCollector:
    def __init__(
        self,
        fast_reads: FastReads,
        pools: Mapping[str, WorkerPool],
        revision: Callable[[], int],
        totals: Callable[[], Mapping[str, int]],
    ) -> None:
        self._fast_reads = fast_reads
        self._pools = pools
        self._revision = revision
        self._totals = totals
        self._lock = Lock()  # scrapes run in several threads
        self._totals_revision = -1  # the store's revision when the totals were read
        self._last_totals: Mapping[str, int] = {}

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            f"{_PREFIX}_fast_reads", "reads by id from memory", value=self._fast_reads.hits
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}_fast_reads_bytes", "answers held", value=self._fast_reads.cached_bytes
        )
        waiting = GaugeMetricFamily(
            f"{_PREFIX}_waiting", "requests that wait for a thread", labels=["work"]
        )
        refused = CounterMetricFamily(
            f"{_PREFIX}_busy_refusals", "requests refused because too many wait", labels=["work"]
        )
        for work, pool in self._pools.items():
            waiting.add_metric([work], pool.waiting)
            refused.add_metric([work], pool.refused)
        yield waiting
        yield refused
        for name, value in self._current().items():
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", f"live {name}", value=value)

    def _current(self) -> Mapping[str, int]:
        with self._lock:
            try:
                revision = self._revision()
                if revision != self._totals_revision:
                    self._last_totals, self._totals_revision = self._totals(), revision
            except SQLAlchemyError as error:
                _LOG.warning("the totals of the store are not available: %s", error)
                return {}
            return self._last_totals
