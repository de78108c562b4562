"""What a mirror has done and how far it lags, as numbers that another thread may read.

Rules: each source has its own, written by its own thread alone; a reader sees numbers that are a
moment old, and never waits. Lag is by what the target has acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MirrorProgress", "TopicLag"]


@dataclass(frozen=True, slots=True)
class TopicLag:
    """What is left of a topic: messages, and the age of the last copied one if any is left.

    `seconds` is by the record timestamp; None while nothing of the topic has been copied.
    """

    messages: int
    seconds: float | None


@dataclass(slots=True)
class MirrorProgress:
    """The counts of one source, by topic where that makes sense."""

    source: str
    messages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    too_large: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    refused_topics: int = 0
    lags: Mapping[str, TopicLag] = field(default_factory=dict)
    acknowledged_at: float = 0.0
