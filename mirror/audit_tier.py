"""The mirror as a tier of the audit: copied messages per topic and window, published to the target.

Rules: a message counts as attempted before it is sent, and as mirrored after the target has
acknowledged it. Messages in flight when a mirror is killed or a session ends are `unresolved`, and
are sent again. The audit topic itself is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.outcomes import ATTEMPTED, MIRRORED, TOO_LARGE, UNRESOLVED
from headworks._audit_counting.publishing import AuditPublisher
from headworks._audit_counting.schema_use import SchemaIds
from headworks.registry_client._schema_ids import EventSchemaIds

# (topic, window, schema ids) -> [messages, bytes of values]
Counts = dict[tuple[str, int, SchemaIds], list[int]]
_PUBLISH_SECONDS = 10.0


class MirrorAuditTier:
    """Counts the messages of all sources of a mirror, and publishes the counts to the target."""

    def __init__(
        self, client: Mapping[str, Any], registry: str, folder: Path, *, tier: str
    ) -> None:
        self._publisher = AuditPublisher(
            client,
            EventSchemaIds(registry, folder),
            folder,
            tier=tier,
            application="headworks-mirror",
            every=_PUBLISH_SECONDS,
        )
        self._counters = self._publisher.counters

    def attempted(self, counts: Counts) -> None:
        """Count messages that are about to be sent."""
        for topic, window, ids, messages, size in _audited(counts):
            self._counters.count(topic, window, size, ATTEMPTED, messages, ids)

    def mirrored(self, counts: Counts) -> None:
        """Count messages that the target has acknowledged."""
        for topic, window, ids, messages, _ in _audited(counts):
            self._counters.count(topic, window, 0, MIRRORED, messages, ids)

    def unresolved(self, counts: Counts) -> None:
        """Count messages with an unknown outcome, which are sent again."""
        for topic, window, ids, messages, _ in _audited(counts):
            self._counters.count(topic, window, 0, UNRESOLVED, messages, ids)

    def too_large(self, topic: str, window: int, ids: SchemaIds) -> None:
        """Count a message that the target rejected and the mirror skipped."""
        if topic != AUDIT_TOPIC:
            self._counters.count(topic, window, 0, TOO_LARGE, ids=ids)

    def close(self) -> None:
        """Publish the remaining counts for a few seconds; the next process publishes the rest."""
        self._publisher.close()


def _audited(counts: Counts) -> Iterator[tuple[str, int, SchemaIds, int, int]]:
    for (topic, window, ids), (messages, size) in counts.items():
        if topic != AUDIT_TOPIC and messages:
            yield topic, window, ids, messages, size
