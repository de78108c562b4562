"""When a client is too slow: what it has begun must move on, by a few bytes a second at least.

Rules: time and bytes are passed in; an answer is a sentence for the log, or "" as long as all is
well. Whoever waits for the broker, or is held back by it, is never judged.
"""

from __future__ import annotations

from headworks._broker.server.limits import Limits

__all__ = ["Pace"]


class Pace:
    """How one client gets on."""

    __slots__ = ("_begun", "_limits", "_mark", "_request")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._mark = (0.0, 0)  # from when on replies wait to be read, and bytes sent until then
        self._request = 0.0  # when the request began that comes now
        self._begun = (0.0, 0)  # from when on it is judged, and its bytes until then

    def blocked(self, now: float, sent: int) -> None:
        """From now on replies wait for the client to read."""
        self._mark = now, sent

    def unread(self, now: float, sent: int, *, short: bool) -> str:
        """Replies still wait; `sent` is how many bytes it has taken in all; `short` as below."""
        since, before = self._mark
        took, moved = now - since, sent - before
        if took < self._patience(short=short):
            return ""
        if moved < self._limits.slowest * took:
            return f"read {moved} bytes of its replies in {took:.0f} s"
        self._mark = now, sent
        return ""

    def unfinished(self, now: float, since: float, came: int, *, short: bool) -> str:
        """Of a request that began at `since` so many bytes have come.

        `short` says that others wait for the memory it holds. What came in one breath is no excuse
        for standing still afterwards.
        """
        if since != self._request:
            self._request, self._begun = since, (since, 0)
        began, before = self._begun
        took, moved = now - began, came - before
        if took < self._patience(short=short):
            return ""
        if moved < self._limits.slowest * took:
            return f"sent {moved} bytes of a request in {took:.0f} s"
        self._begun = now, came
        return ""

    def _patience(self, *, short: bool) -> float:
        return self._limits.short_seconds if short else self._limits.stall_seconds
