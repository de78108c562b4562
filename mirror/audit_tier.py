"""The mirror as a tier of the audit: what it copied, per topic and window, told to the target.

Rules: what is handed to the target is counted as attempted before, and as mirrored after the
target has acknowledged it; what a killed mirror, or a broken session, had on the way is
`unresolved`, and comes again. The audit topic itself is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.outcomes import ATTEMPTED, MIRRORED, TOO_LARGE, UNRESOLVED
from headworks._audit_counting.publishing import AuditPublisher
from headworks.registry_client._schema_ids import EventSchemaIds

__all__ = ["Counts", "MirrorAuditTier"]

# (topic, window) -> [messages, bytes of values]
Counts = dict[tuple[str, int], list[int]]
_PUBLISH_SECONDS = 10.0


class MirrorAuditTier:
    """Counts what all sources of a mirror copy, and publishes it to the target's audit topic."""

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
        """These are about to be sent."""
        for topic, window, messages, size in _audited(counts):
            self._counters.count(topic, window, size, ATTEMPTED, messages)

    def mirrored(self, counts: Counts) -> None:
        """The target has these."""
        for topic, window, messages, _ in _audited(counts):
            self._counters.count(topic, window, 0, MIRRORED, messages)

    def unresolved(self, counts: Counts) -> None:
        """Whether the target has these is not known; they are sent again."""
        for topic, window, messages, _ in _audited(counts):
            self._counters.count(topic, window, 0, UNRESOLVED, messages)

    def too_large(self, topic: str, window: int) -> None:
        """The target did not take this one, and it was left out."""
        if topic != AUDIT_TOPIC:
            self._counters.count(topic, window, 0, TOO_LARGE)

    def close(self) -> None:
        """Publish what is left within a few seconds; the next process publishes the remainder."""
        self._publisher.close()


def _audited(counts: Counts) -> Iterator[tuple[str, int, int, int]]:
    for (topic, window), (messages, size) in counts.items():
        if topic != AUDIT_TOPIC and messages:
            yield topic, window, messages, size
