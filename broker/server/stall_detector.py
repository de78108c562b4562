"""Decide whether a client is too slow: a request or reply in progress must keep moving.

Rules: the caller passes time and byte counts. A verdict is a sentence for the log, or "" if the
client is fast enough. A client that waits for the broker is never judged.
"""

from __future__ import annotations

from headworks._broker.server.limits import ClientLimits


class StallDetector:
    """Watches how fast one client sends a request and reads its replies.

    `low_memory` means that other clients lack memory; the client then has less time.
    """

    __slots__ = ("_limits", "_reading_mark", "_request_begun_at", "_request_mark")

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        # A mark is a time and the bytes moved until then: speed is measured from there
        self._reading_mark = (0.0, 0)
        self._request_mark = (0.0, 0)
        self._request_begun_at = 0.0  # when the measured request began to arrive

    def replies_blocked(self, now: float, sent: int) -> None:
        """Start measuring: from now on the client has unread replies."""
        self._reading_mark = now, sent

    def check_unread_replies(self, now: float, sent: int, *, low_memory: bool) -> str:
        """Judge a client with unread replies. It has been sent `sent` bytes in all."""
        since, before = self._reading_mark
        elapsed, moved = now - since, sent - before
        if elapsed < self._patience_seconds(low_memory=low_memory):
            return ""
        if moved < self._limits.min_bytes_per_second * elapsed:
            return f"read {moved} bytes of its replies in {elapsed:.0f} s"
        self._reading_mark = now, sent
        return ""

    def check_unfinished_request(
        self, now: float, begun_at: float, received: int, *, low_memory: bool
    ) -> str:
        """Judge a client of whose request, begun at `begun_at`, `received` bytes have arrived.

        The mark moves on after each check, so a fast beginning does not excuse a stop.
        """
        if begun_at != self._request_begun_at:
            self._request_begun_at, self._request_mark = begun_at, (begun_at, 0)
        since, before = self._request_mark
        elapsed, moved = now - since, received - before
        if elapsed < self._patience_seconds(low_memory=low_memory):
            return ""
        if moved < self._limits.min_bytes_per_second * elapsed:
            return f"sent {moved} bytes of a request in {elapsed:.0f} s"
        self._request_mark = now, received
        return ""

    def _patience_seconds(self, *, low_memory: bool) -> float:
        limits = self._limits
        return limits.stall_seconds_low_memory if low_memory else limits.stall_seconds
