"""Keeps retention from trusting a clock that has just jumped forward.

Retention compares times of files with the clock of the machine. If that clock is set wrong by a
month, everything would expire at once.

Rule: after the clock gained more than `_JUMP_SECONDS` on the monotonic clock between two looks,
retention pauses for `_PAUSE_SECONDS`, and an error is logged. An operator has that long to set the
clock right. A jump back, or a pause that has passed, lets retention continue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)
_JUMP_SECONDS = 3600.0
_PAUSE_SECONDS = 6 * 3600.0


class ClockGuard:
    """Compares the wall clock with a monotonic one; both in seconds."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lead = wall() - monotonic()  # of the wall clock that is trusted
        self._paused_until = 0.0  # by the monotonic clock

    def may_expire(self) -> bool:
        """Return whether retention may trust the wall clock now."""
        now = self._monotonic()
        gained = self._wall() - now - self._lead
        if gained <= _JUMP_SECONDS:
            self._lead += gained  # small steps are the work of a time service
            self._paused_until = 0.0
            return True
        if not self._paused_until:
            self._paused_until = now + _PAUSE_SECONDS
            _log.error(
                "the clock jumped forward by %.0f s: retention pauses for %.0f s. If the clock is"
                " wrong, set it right before then",
                gained,
                _PAUSE_SECONDS,
                extra={"seconds": gained},
            )
        if now < self._paused_until:
            return False
        self._lead += gained
        self._paused_until = 0.0
        return True
