"""Which segments retention removes: those that are too old, too many, or deleted by a client."""

from __future__ import annotations

from collections.abc import Sequence

from headworks._broker.log.config import LogConfig
from headworks._broker.log.segment import LogSegment


def removable(
    segments: Sequence[LogSegment], config: LogConfig, log_start_offset: int, now_ms: int
) -> int:
    """Return how many of the oldest segments to remove. Only age removes the active one, too."""
    size = sum(segment.size for segment in segments)
    for number, segment in enumerate(segments):
        active = segment is segments[-1]
        age_ms = now_ms - segment.last_write_ms()
        old = segment.size and 0 <= config.retention_ms < age_ms
        large = not active and 0 <= config.retention_bytes < size - segment.size
        deleted = not active and segment.next_offset <= log_start_offset
        if not (old or large or deleted):
            return number
        size -= segment.size
    return len(segments)
