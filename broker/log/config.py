"""The configs of a topic that its logs need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """When the compactor compacts a log, and how long tombstones stay."""

    min_dirty_ratio: float = 0.5  # of sealed bytes that must be uncompacted
    min_lag_ms: int = 0  # a record stays uncompacted for this long
    max_lag_ms: int = -1  # a record is compacted after this long at the latest; -1: unlimited
    delete_retention_ms: int = 24 * 3600 * 1000  # how long a tombstone stays


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How a log rolls, retains, and exposes records; -1 means unlimited."""

    segment_bytes: int = 1 << 30  # maximum size of a segment
    segment_ms: int = 7 * 24 * 3600 * 1000  # maximum age of the active segment
    retention_ms: int = 7 * 24 * 3600 * 1000  # since the last write to a segment
    retention_bytes: int = -1  # of the whole log
    show_unflushed: bool = False  # whether consumers may read records that are not on disk yet
    compaction: CompactionConfig | None = None  # None: the topic is not compacted

    @property
    def roll_ms(self) -> int:
        """The age at which the active segment rolls. The compactor reads only sealed ones."""
        if self.compaction is None or self.compaction.max_lag_ms < 0:
            return self.segment_ms
        return min(self.segment_ms, self.compaction.max_lag_ms)
