"""A topic as this broker hosts it: its name, its assignment, and the partitions served here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headworks._broker.coordination import INTERNAL_ID_VERSION
from headworks._broker.topics.opening import OpenFailure
from headworks._broker.topics.partition import HostedPartition
from headworks.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LOG_INTERVAL_SECONDS = 1.0
OFFSETS_TOPIC = "__consumer_offsets"  # Apache Kafka's name for it
# Topics of Apache Kafka itself. A client that asks for one does not mean an empty one.
KAFKAS_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})


def is_topic_name(name: str) -> bool:
    """Return whether this is a valid topic name."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


class InvalidTopicError(UsageError):
    """The name of a topic is not valid, or not available."""


class TooManyPartitionsError(UsageError):
    """The cluster would have more partitions than this broker allows."""


@dataclass(slots=True)
class HostedTopic:
    """A topic, and its partitions on this broker."""

    name: str
    assignment: tuple[int, ...]  # the broker of each partition
    configs: Mapping[str, str]  # those that differ from the defaults
    topic_id: UUID
    partitions: dict[int, HostedPartition] = field(default_factory=dict)  # served here, by number
    refused: dict[int, OpenFailure] = field(default_factory=dict)  # its partitions that do not open
    opened_at: float = 0.0  # when its partitions were last opened, by the time of the loop

    @property
    def internal(self) -> bool:
        """Whether only the broker writes, configures, and deletes it."""
        return self.topic_id.version == INTERNAL_ID_VERSION

    @property
    def count(self) -> int:
        """The number of its partitions, on all brokers."""
        return len(self.assignment)

    @property
    def can_reopen(self) -> bool:
        """Whether a refused partition may open without a restart."""
        return any(refusal.retryable for refusal in self.refused.values())

    def may_reopen(self, now: float) -> bool:
        """Return whether it is time to try that."""
        return self.can_reopen and now - self.opened_at >= _LOG_INTERVAL_SECONDS
