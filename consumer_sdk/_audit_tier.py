"""A consumer group as a tier of the audit: its messages by topic, window, and outcome.

Rules: a message is counted when it is processed, in a memory-mapped file. If the process is killed,
the next one publishes its counts. A message that is processed twice is counted twice, because that
is what happened. The audit topic itself is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka

from headworks._audit_counting import AUDIT_TOPIC, window_of
from headworks._audit_counting.outcomes import SKIPPED
from headworks._audit_counting.publishing import AuditPublisher
from headworks._audit_counting.tally import Report
from headworks.registry_client._schema_ids import EventSchemaIds


class AuditTier:
    """Counts for `group`, and publishes every `every` seconds and when it is closed."""

    def __init__(
        self,
        client: Mapping[str, Any],
        registry: str,
        group: str,
        application: str,
        state_dir: Path,
        *,
        every: float,
    ) -> None:
        self._last_windows: dict[str, int] = {}  # the window of the last message, by topic
        self._folder = state_dir / group.replace("/", "%2F")
        self._client, self._ids = client, EventSchemaIds(registry, state_dir)
        self._application, self._every = application, every
        self._publisher = self._publish(self._folder, f"consumer:{group}")
        self._retries: AuditPublisher | None = None  # as the producer of its retry topics

    def _publish(self, folder: Path, tier: str) -> AuditPublisher:
        application, every = self._application, self._every
        return AuditPublisher(
            self._client, self._ids, folder, tier=tier, application=application, every=every
        )

    def put_off(self, topic: str, message: confluent_kafka.Message) -> Report:
        """Count a message that is sent to a retry topic; return what counts its delivery."""
        if self._retries is None:
            self._retries = self._publish(self._folder / "retries", "producer")
        size = len(message.value() or b"")
        return self._retries.counters.attempt(topic, message.timestamp()[1], size).report

    def processed(self, message: confluent_kafka.Message, outcome: int) -> None:
        """Count a message with its outcome, an index of OUTCOMES."""
        topic = message.topic()
        if topic is None or topic == AUDIT_TOPIC:
            return
        window = self._last_windows[topic] = window_of(message.timestamp()[1])
        size = len(message.value() or b"")
        self._publisher.counters.count(topic, window, size, outcome)

    def damaged(self, topic: str, messages: int) -> None:
        """Count messages that were skipped with their damaged batch.

        Their times are unknown: they count in the window of the topic's last message before them.
        """
        if messages and topic != AUDIT_TOPIC:
            window = self._last_windows.get(topic, 0)
            self._publisher.counters.count(topic, window, 0, SKIPPED, messages)

    def close(self) -> None:
        """Publish the rest within a few seconds; the next process publishes what is left then."""
        if self._retries is not None:
            self._retries.close()
        self._publisher.close()
