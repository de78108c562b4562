"""How a partition's log behaves: the values that the log itself needs of a topic's configs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CompactionConfig", "LogConfig"]


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """When sealed segments are compacted, and how long tombstones stay; -1 means no limit."""

    min_dirty_ratio: float = 0.5
    min_lag_ms: int = 0
    max_lag_ms: int = -1
    delete_retention_ms: int = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How a partition's log behaves; -1 means no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    show_unflushed: bool = False
    compaction: CompactionConfig | None = None
