"""The mirror's Prometheus metrics. Rules: a scrape reads numbers in memory and asks no server.

prometheus-client is imported only here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headworks._mirror.progress import MirrorProgress
from headworks._server.metrics_page import MetricsEndpoint, MetricsPage

_TOPIC = ["source", "topic"]


class MirrorMetrics(MetricsPage):
    """Serves `/metrics` until `stop`."""

    def __init__(self, endpoint: MetricsEndpoint, sources: Sequence[MirrorProgress]) -> None:
        registry = CollectorRegistry()
        registry.register(_MirrorCollector(sources))
        ProcessCollector(registry=registry)
        super().__init__(endpoint, lambda: generate_latest(registry))


class _MirrorCollector:
    def __init__(self, sources: Sequence[MirrorProgress]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        for attribute, name, text in (
            ("messages", "headworks_mirror_messages", "Messages that the target has acknowledged."),
            ("bytes", "headworks_mirror_bytes", "Bytes of their values."),
            (
                "too_large",
                "headworks_mirror_too_large",
                "Messages left out: too large for the target.",
            ),
            ("lost", "headworks_mirror_lost", "Messages that the source no longer had."),
            (
                "damaged",
                "headworks_mirror_damaged",
                "Offsets of damaged batches that were skipped.",
            ),
        ):
            family = CounterMetricFamily(name, text, labels=_TOPIC)
            for source in self._sources:
                counts = getattr(source, attribute)
                # A counter that begins at its first loss hides it from `increase`.
                for topic in sorted({*counts, *source.messages, *source.lags}):
                    family.add_metric([source.source, topic], counts[topic])
            yield family
        yield from self._lags()
        yield from self._health()

    def _lags(self) -> Iterator[Metric]:
        messages = GaugeMetricFamily(
            "headworks_mirror_lag_messages", "Not mirrored yet.", labels=_TOPIC
        )
        seconds = GaugeMetricFamily(
            "headworks_mirror_lag_seconds",
            "Age of the last mirrored message, by its timestamp, while any is left; else 0.",
            labels=_TOPIC,
        )
        for source in self._sources:
            for topic, lag in sorted(source.lags.items()):
                messages.add_metric([source.source, topic], lag.messages)
                if lag.seconds is not None:
                    seconds.add_metric([source.source, topic], lag.seconds)
        yield from (messages, seconds)

    def _health(self) -> Iterator[Metric]:
        labels = ["source"]
        sessions = CounterMetricFamily(
            "headworks_mirror_sessions", "Sessions begun.", labels=labels
        )
        refused = GaugeMetricFamily(
            "headworks_mirror_refused_topics",
            "Topics that the target does not take.",
            labels=labels,
        )
        since = GaugeMetricFamily(
            "headworks_mirror_checkpoint_age_seconds", "Since the last checkpoint.", labels=labels
        )
        errors: Any = CounterMetricFamily(
            "headworks_mirror_errors",
            "Errors of clients and registries.",
            labels=["source", "kind"],
        )
        for source in self._sources:
            sessions.add_metric([source.source], source.sessions)
            refused.add_metric([source.source], source.refused_topics)
            if source.acknowledged_at:
                since.add_metric([source.source], time.time() - source.acknowledged_at)
            for kind, count in sorted(source.errors.items()):
                errors.add_metric([source.source, kind], count)
        yield from (sessions, refused, since, errors)
