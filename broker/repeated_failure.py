"""Log a failure that repeats as one event.

Rules: the first failure is logged, then one a minute with their number, and the recovery. A failure
that begins again within that minute counts as well, and so does its end. Clients that retry must
not fill a disk that is already full.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

_LOG_INTERVAL_SECONDS = 60.0


class RepeatedFailure:
    """One thing that may fail repeatedly. `about` are fields of the log records."""

    __slots__ = ("_began", "_clock", "_failures", "_last_logged", "_log", "_told", "_what")

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._failures = 0  # since it last succeeded
        self._began = 0.0  # the first of them
        self._last_logged = float("-inf")
        self._told = False  # whether a failure was logged since it last succeeded

    @property
    def ongoing(self) -> bool:
        """Whether it failed the last time."""
        return self._failures > 0

    def failed(self, error: Exception, about: Mapping[str, object]) -> None:
        """Note a failure."""
        now = self._clock()
        self._failures += 1
        if self._failures == 1:
            self._began = now
        if now - self._last_logged < _LOG_INTERVAL_SECONDS:
            return
        self._last_logged, self._told = now, True
        fields = {**about, "error": str(error)}
        if self._failures == 1:
            self._log.error("%s: %s", self._what, error, extra=fields)
            return
        self._log.error(
            "%s, %d times in %.0f s: %s",
            self._what,
            self._failures,
            now - self._began,
            error,
            extra=fields | {"failures": self._failures},
        )

    def recovered(self, about: Mapping[str, object]) -> None:
        """Note a success."""
        if not self._failures:
            return
        failures, self._failures = self._failures, 0
        told, self._told = self._told, False
        if not told:
            return
        seconds = self._clock() - self._began
        self._log.warning(
            "%s: over after %.1f s; it failed %d times",
            self._what,
            seconds,
            failures,
            extra={**about, "failures": failures, "seconds": seconds},
        )
