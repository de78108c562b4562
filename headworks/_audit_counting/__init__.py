"""Audit counting: how each tier that moves messages counts them for the audit.

- `counters`: a tier's counts in a memory-mapped file, which survives the process; `layout` of that
  file; `outcomes`; `schema_use`: the ids that it counts by.
- `window_counts`: the counts of a window; `tally`: the two steps of a message.
- `reporting`: the counts as audit events. `publishing`: a thread that publishes them.
- `heartbeats`: the audit events by which a process says that it runs, or that it has ended.
- `event`: the audit event, generated from schemas/headworks/audit.avsc.

Rules: every tier counts by topic, 10-minute window of the record timestamp, and schema id. The
audit topic itself is not counted.
"""

from __future__ import annotations

AUDIT_TOPIC = "headworks.audit"
WINDOW_MS = 600_000


def window_of(timestamp: int) -> int:
    """Return the start of the window of `timestamp`, both in milliseconds since 1970 UTC."""
    return timestamp - timestamp % WINDOW_MS
