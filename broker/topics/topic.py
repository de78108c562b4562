"""A topic as a broker has it: its name, who has which partition, and what is served of it here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headworks._broker.topics.opening import OpenFailure
from headworks._broker.topics.partition import HostedPartition
from headworks.errors import UsageError

__all__ = ["HostedTopic", "InvalidTopicError", "TooManyPartitionsError", "is_topic_name"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LOG_INTERVAL_SECONDS = 1.0


def is_topic_name(name: str) -> bool:
    """Whether a topic can be called so."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


class InvalidTopicError(UsageError):
    """A name that a topic cannot have."""


class TooManyPartitionsError(UsageError):
    """There would be more partitions than this broker serves."""


@dataclass(slots=True)
class HostedTopic:
    """A topic: the broker of each partition, and the partitions that this broker has.

    `refused` are those of them that cannot be served, with the reason.
    """

    name: str
    assignment: tuple[int, ...]
    configs: Mapping[str, str]
    partitions: dict[int, HostedPartition] = field(default_factory=dict)
    refused: dict[int, OpenFailure] = field(default_factory=dict)
    opened_at: float = 0.0  # when partitions of it were opened last

    @property
    def count(self) -> int:
        """How many partitions the topic has."""
        return len(self.assignment)

    @property
    def can_reopen(self) -> bool:
        """Whether a partition that is refused may be opened without a restart."""
        return any(refusal.retryable for refusal in self.refused.values())

    def may_reopen(self, now: float) -> bool:
        """Whether it is time to try that again."""
        return self.can_reopen and now - self.opened_at >= _LOG_INTERVAL_SECONDS
