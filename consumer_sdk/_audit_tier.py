"""A consumer group as a tier of the audit: what it consumed and skipped, per topic and window.

Rules: a message is counted when it is processed, in a memory-mapped file, so that a killed
process's counts are published by the next one; a message that is processed twice is counted twice,
because that is what happened. The audit topic itself is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka

from headworks._audit_counting import AUDIT_TOPIC, window_of
from headworks._audit_counting.outcomes import CONSUMED, SKIPPED
from headworks._audit_counting.publishing import AuditPublisher
from headworks.registry_client._schema_ids import EventSchemaIds

__all__ = ["AuditTier"]


class AuditTier:
    """Counts for `group` and publishes every `every` seconds; `close` publishes the rest."""

    def __init__(
        self,
        client: Mapping[str, Any],
        registry: str,
        *,
        group: str,
        application: str,
        state_dir: Path,
        every: float,
    ) -> None:
        self._publisher = AuditPublisher(
            client,
            EventSchemaIds(registry, state_dir),
            state_dir / group.replace("/", "%2F"),
            tier=f"consumer:{group}",
            application=application,
            every=every,
        )

    def processed(self, message: confluent_kafka.Message, *, skipped: bool) -> None:
        """Count a message that the application is done with, or that was left out."""
        topic = message.topic()
        if topic is None or topic == AUDIT_TOPIC:
            return
        window = window_of(message.timestamp()[1])
        size = len(message.value() or b"")
        self._publisher.counters.count(topic, window, size, SKIPPED if skipped else CONSUMED)

    def close(self) -> None:
        """Publish what is left within a few seconds; the next process publishes the remainder."""
        self._publisher.close()
