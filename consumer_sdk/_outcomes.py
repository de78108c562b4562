"""The end of a message: handled, skipped, put off, or dead, and counted as such in the audit.

Rules: each message ends once, and counts under one outcome. So for each topic, the messages that
arrived are those handled, skipped, dead, and retried. A message is written to another topic before
it counts.
"""

from __future__ import annotations

import confluent_kafka

from consumer_sdk._audit_tier import AuditTier
from consumer_sdk._group_config import GroupConfig
from consumer_sdk._membership import Membership
from consumer_sdk._poison import OnPoison, stopped_at
from headworks._audit_counting.outcomes import CONSUMED, DEAD, RETRIED, SKIPPED
from headworks.errors import HeadworksError


class MessageOutcomes:
    """Ends the messages of one thread of a consumer."""

    def __init__(self, config: GroupConfig, on_poison: OnPoison, audit: AuditTier | None) -> None:
        self._config, self._on_poison, self._audit = config, on_poison, audit
        self._dead_letters = config.dead_letter_writer()

    def copy(self) -> MessageOutcomes:
        """Return the outcomes of another thread."""
        return MessageOutcomes(self._config, self._on_poison, self._audit)

    def end(self, raw: confluent_kafka.Message, group: Membership, outcome: int = CONSUMED) -> None:
        """Count a message, and let the group commit it."""
        if self._audit is not None:
            self._audit.processed(raw, outcome)
        group.processed(raw)

    def write_dead(self, raw: confluent_kafka.Message, reason: str, exception: str | None) -> int:
        """Write a message to the dead-letter topic, and return its outcome."""
        self._dead_letters.send(raw, reason, exception)
        return DEAD

    def put_off(self, raw: confluent_kafka.Message, delay: int, count: int) -> int:
        """Write a message to the retry topic of a delay in seconds, and return its outcome."""
        self._dead_letters.put_off(raw, delay, count, self._audit)
        return RETRIED

    def of_poison(self, raw: confluent_kafka.Message, error: HeadworksError) -> int:
        """Return the outcome of a message that cannot be decoded, by `on_poison`, or raise."""
        if self._on_poison is OnPoison.STOP:
            raise stopped_at(raw, error) from error
        if self._on_poison is OnPoison.DEAD_LETTER:
            return self.write_dead(raw, error.message, type(error).__name__)
        return SKIPPED
