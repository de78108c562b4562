"""Audit counting: what every tier that moves messages uses to say how many it has seen.

- `counters`: a tier's counts in a memory-mapped file, which survives the process;
- `publishing`: those counts, published on time by a thread;
- `event`: the audit event, generated from schemas/headworks/audit.avsc.

Rules: counts are per topic and 10-minute window of the record timestamp, at every tier alike; the
audit topic itself is not counted.
"""

from __future__ import annotations

__all__ = ["AUDIT_TOPIC", "WINDOW_MS", "window_of"]

AUDIT_TOPIC = "headworks.audit"
WINDOW_MS = 600_000


def window_of(timestamp: int) -> int:
    """The start, in milliseconds since 1970 UTC, of the window that `timestamp` falls into."""
    return timestamp - timestamp % WINDOW_MS
