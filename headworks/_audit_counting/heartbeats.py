"""Heartbeats: audit events by which a process that counts says that it runs, or that it has ended.

A heartbeat is an audit event of the audit topic itself, which no tier counts. Its id is the name of
the process's counter file. Its only count is RUNNING, with the seconds until the next heartbeat, or
ENDED.

Rules:

- A process sends its first heartbeat with its first counts, so one that counts nothing is unknown.
- ENDED is sent after all counts are published: by the process, or by the one that found its file.
  The file stays until the broker has acknowledged ENDED. So a process without ENDED was killed, and
  no other process has published what it left.
"""

from __future__ import annotations

from typing import Final

RUNNING: Final = "running"
ENDED: Final = "ended"
HEARTBEAT_SECONDS: Final = 60.0
