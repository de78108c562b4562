"""The messages of a consumer as Prometheus metrics, for the page that your service serves already.

    from prometheus_client import REGISTRY
    REGISTRY.register(ConsumerCollector(consumer, application="checkout"))

Rules: it reads the totals when the page is read, and starts and serves nothing itself. It needs
`pip install prometheus-client`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from consumer_sdk._consumer import Consumer
from consumer_sdk._handlers import Consumers

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["ConsumerCollector"]


class ConsumerCollector:
    """A collector for a consumer or its handlers, under the label `application`."""

    def __init__(self, consumer: Consumer[Any] | Consumers, *, application: str) -> None:
        self._consumer = consumer
        self._application = application

    def collect(self) -> Iterator[Metric]:
        """Yield the messages by outcome."""
        from prometheus_client.core import CounterMetricFamily

        messages = CounterMetricFamily(
            "headworks_consumer_messages",
            "Messages of this process by outcome; dead ones are in a dead-letter topic.",
            labels=["application", "outcome"],
        )
        for outcome, number in self._consumer.totals.items():
            messages.add_metric([self._application, outcome], number)
        yield messages
