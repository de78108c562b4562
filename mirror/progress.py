"""The counts and the lag of a mirror, as numbers that another thread may read.

Rules: each source has its own counts, and only its thread writes them. A reader sees numbers that
are a moment old, and never waits. Lag counts messages that the target has not acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The lag of a topic: messages, and the age of the last copied one if any is left.

    `seconds` is by the record timestamp; None before a message of the topic was copied.
    """

    messages: int
    seconds: float | None


@dataclass(slots=True)
class MirrorProgress:
    """The counts of one source, mostly by topic."""

    source: str  # its bootstrap servers
    # By topic: acknowledged messages, bytes of their values, skipped messages, and offsets
    # that were lost, or skipped with a damaged batch.
    messages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    too_large: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    damaged: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)  # by kind
    sessions: int = 0  # started
    refused_topics: int = 0
    lags: Mapping[str, TopicLag] = field(default_factory=dict)
    acknowledged_at: float = 0.0  # Unix time of the last checkpoint; 0: none
