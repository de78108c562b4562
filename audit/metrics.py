"""The audit's figures as Prometheus metrics.

Rules: labels are tiers, and only the worst few topics, so the number of series is bounded. Figures
cover the last 24 hours as of the last check; a scrape does not read the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headworks._audit import queries
from headworks._audit.balance import Balance, total
from headworks._audit.findings import AuditFinding
from headworks._audit.reconciler import ReconcilerProgress
from headworks._audit.results import TierState, TimeToComplete
from headworks._audit.states import DEFINITIONS
from headworks._audit.store import AuditStore
from headworks._audit.store.aggregate import PRODUCER_TIER
from headworks._audit.thresholds import stored_thresholds
from headworks._audit_counting import WINDOW_MS

_PREFIX = "headworks_audit"
_DAY_MS = 86_400_000
_MAX_WORST_TOPICS = 20


@dataclass(frozen=True, slots=True)
class TierSnapshot:
    """A tier's figures of the last day."""

    state: TierState
    balance: Balance
    worst: tuple[Balance, ...]
    time: TimeToComplete


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The figures of the store at the last check."""

    at: int
    findings: Sequence[AuditFinding]
    tiers: Sequence[TierSnapshot]
    holes: int


def take_snapshot(store: AuditStore, now: int, found: Sequence[AuditFinding]) -> MetricsSnapshot:
    """Read all figures from the store."""
    since, tiers = now - _DAY_MS, []
    due = now - WINDOW_MS + 1 - stored_thresholds(store).complete_within_ms
    for state in queries.tiers(store):
        rows = []
        if state.tier != PRODUCER_TIER:
            rows = queries.topic_sums(store, state.tier, since=since)
        tiers.append(
            TierSnapshot(
                state,
                total(rows),
                tuple(row for row in rows[:_MAX_WORST_TOPICS] if row.losses),
                # Only windows that are due: a newer one waits for its load, which is no delay yet.
                queries.time_to_complete(store, state.tier, since=since, until=due),
            )
        )
    holes = queries.holes(store)
    return MetricsSnapshot(now, found, tiers, holes.unreadable + holes.missed)


class AuditMetrics:
    """A Prometheus collector of the last snapshot and the reconciler's progress."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self.progress = ReconcilerProgress(0, 0)  # set after each batch
        self.increments = 0  # new ones since the start
        self.last: MetricsSnapshot | None = None  # of the last check

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as of the last check."""
        yield CounterMetricFamily(
            f"{_PREFIX}_messages_read", "messages of the audit topic", value=self.progress.read
        )
        yield CounterMetricFamily(
            f"{_PREFIX}_increments", "increments that were new", value=self.increments
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}_behind_messages", "audit messages to read", value=self.progress.lag
        )
        if self.last is not None:
            yield from _snapshot_metrics(self.last)


def _snapshot_metrics(last: MetricsSnapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        f"{_PREFIX}_last_look_timestamp_seconds", "when figures are of", value=last.at / 1000
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}_hole_messages", "audit messages that could not be read", value=last.holes
    )
    kinds = GaugeMetricFamily(f"{_PREFIX}_findings", "findings, by kind", labels=["kind"])
    for kind in sorted({finding.kind for finding in last.findings}):
        kinds.add_metric([kind], sum(finding.kind == kind for finding in last.findings))
    yield kinds
    last_reports = GaugeMetricFamily(
        f"{_PREFIX}_tier_last_report_timestamp_seconds", "last report of a tier", labels=["tier"]
    )
    for tier in last.tiers:
        last_reports.add_metric([tier.state.tier], tier.state.last_sent / 1000)
    yield last_reports
    below = [tier for tier in last.tiers if tier.state.tier != PRODUCER_TIER]
    messages = GaugeMetricFamily(
        f"{_PREFIX}_messages",
        "messages of the last day by their state at a tier",
        labels=["tier", "state"],
    )
    for tier in below:
        for state in DEFINITIONS:
            messages.add_metric([tier.state.tier, state], getattr(tier.balance, state))
    yield messages
    yield from _worst_topic_metrics(below)


def _worst_topic_metrics(below: Sequence[TierSnapshot]) -> Iterator[Metric]:
    labels = ["tier", "topic"]
    topics = GaugeMetricFamily(
        f"{_PREFIX}_worst_topic_lost_messages",
        "lost, dropped, failed, and abandoned messages of the worst topics, last day",
        labels=labels,
    )
    completion = GaugeMetricFamily(
        f"{_PREFIX}_complete_seconds",
        "from a window's end until 99.9 % of it was at a tier, last day",
        labels=["tier", "quantile"],
    )
    for tier in below:
        for row in tier.worst:
            topics.add_metric([tier.state.tier, row.topic], row.losses)
        if not tier.time.windows:
            continue  # no window is due yet: nothing waits for ever
        quantiles = (("0.5", tier.time.p50), ("0.95", tier.time.p95), ("0.99", tier.time.p99))
        for quantile, seconds in quantiles:
            completion.add_metric(
                [tier.state.tier, quantile], float("inf") if seconds is None else seconds
            )
    yield topics
    yield completion
