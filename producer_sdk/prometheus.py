"""The totals of a producer as Prometheus metrics, for the page that your service serves already.

    from prometheus_client import REGISTRY
    REGISTRY.register(ProducerCollector(producer, application="checkout"))

Rules: it reads the totals when the page is read, and starts and serves nothing itself. It needs
`pip install prometheus-client`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from producer_sdk._producer import Producer

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["ProducerCollector"]


class ProducerCollector:
    """A collector of prometheus_client for one producer, under the label `application`."""

    def __init__(self, producer: Producer, *, application: str) -> None:
        self._producer = producer
        self._application = application

    def collect(self) -> Iterator[Metric]:
        """Yield the events by outcome, and those that are queued."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        totals = self._producer.totals
        events = CounterMetricFamily(
            "headworks_producer_events",
            "Events of this process by outcome; lost ones are failed or dropped.",
            labels=["application", "outcome"],
        )
        outcomes = {"delivered": totals.delivered, "failed": totals.failed}
        outcomes |= {f"dropped:{reason}": number for reason, number in totals.dropped.items()}
        for outcome, number in outcomes.items():
            events.add_metric([self._application, outcome], number)
        yield events
        queued = GaugeMetricFamily(
            "headworks_producer_queued_events",
            "Events that are queued or spilled, and neither delivered nor lost yet.",
            labels=["application"],
        )
        queued.add_metric([self._application], totals.queued)
        yield queued
