"""A source that a thread reads again and again, and its last result.

Rules:

- A failed read keeps the last good result and records the error. It ends nothing.
- Each source has a thread: a source that hangs delays no other.
- Reading takes at most a fifth of a source's time: a slow source is read less often. But it is read
  again within LONGEST_PAUSE seconds: the last read may have been slow because the server hung.
- A source that no page has asked for is read rarely, and again at once when a page asks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headworks.errors import HeadworksError

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_FIRST_READ_SECONDS = 0.2
_PAUSE_PER_READ = 4
LONGEST_PAUSE = 20.0
_STARTING_INTERVAL_SECONDS = 1.0
_IDLE_AFTER_SECONDS = 15.0  # three renewals of an open page
_IDLE_INTERVAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SourceState:
    """How fresh a source is: the age of the last good result, and the error since then.

    `reading_seconds` is how long the read in progress has taken so far (None: there is none).
    """

    name: str
    age_seconds: float | None
    problem: str | None = None
    fix: str | None = None
    reading_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PollResult(Generic[T]):
    """The last result of a source; `value` is None before the first one."""

    value: T | None
    state: SourceState


class Poller(Generic[T]):
    """Calls `read` in a background thread and keeps the last result.

    It reads every `interval` seconds, or every `idle_interval` seconds if no page has asked for
    `latest` for `idle_after` seconds. `latest` never waits long.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], T],
        *,
        interval: float,
        idle_after: float = _IDLE_AFTER_SECONDS,
        idle_interval: float = _IDLE_INTERVAL_SECONDS,
        longest_pause: float = LONGEST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name  # as pages show it
        self._read = read
        self._interval = interval  # seconds between reads
        self._idle_after, self._idle_interval = idle_after, idle_interval
        self._longest_pause = longest_pause  # of a source that a page has asked for
        self._clock = clock
        self._value: T | None = None  # the last good result
        self._read_at: float | None = None  # when it was read
        self._problem: HeadworksError | None = None  # of the last read, if that failed
        self._reading_since: float | None = None  # when the read in progress began
        self._started_at = self._last_asked_at = clock()
        self._first_read_done = threading.Event()  # also by a failure
        self._page_asked = threading.Event()  # ends a long pause
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._started_at = self._last_asked_at = self._clock()
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, without waiting for a read in progress."""
        self._stopped.set()
        self._page_asked.set()

    def refresh(self) -> None:
        """Read once, now. A failure is recorded, not raised."""
        self._reading_since = self._clock()
        try:
            self._value = self._read()
            self._read_at, self._problem = self._clock(), None
        except HeadworksError as error:
            self._problem = error
        except Exception as error:  # a fault of ours must not end the watching
            _LOG.exception("reading %s failed", self.name)
            self._problem = HeadworksError(f"{self.name} could not be read: {error}")
        finally:
            self._reading_since = None
            self._first_read_done.set()

    @property
    def latest(self) -> PollResult[T]:
        """The last result. Waits a little for the first one after the start."""
        self._last_asked_at = self._clock()
        self._page_asked.set()
        if not self._first_read_done.is_set() and self._thread.is_alive():
            self._first_read_done.wait(
                max(0.0, self._started_at + _FIRST_READ_SECONDS - self._last_asked_at)
            )
        age = None if self._read_at is None else round(max(0.0, self._clock() - self._read_at), 1)
        since = self._reading_since
        reading = None if since is None else round(max(0.0, self._clock() - since), 1)
        problem = self._problem
        message, fix = (None, None) if problem is None else (problem.message, problem.fix)
        return PollResult(self._value, SourceState(self.name, age, message, fix, reading))

    def _run(self) -> None:
        while not self._stopped.is_set():
            started_at = self._clock()
            self.refresh()
            duration = self._clock() - started_at
            pause = min(duration * _PAUSE_PER_READ, self._longest_pause)
            pause = max(self._interval, pause)
            if self._read_at is None:  # until it has answered once, it may just be starting
                pause = max(_STARTING_INTERVAL_SECONDS, min(duration, self._longest_pause))
            self._stopped.wait(pause)
            self._page_asked.clear()
            if self._read_at is not None and not self._is_watched() and not self._stopped.is_set():
                self._page_asked.wait(max(0.0, self._idle_interval - pause))

    def _is_watched(self) -> bool:
        return self._clock() - self._last_asked_at < self._idle_after
