"""A source that is read again and again in the background, and what it said last.

Rules:

- A failed reading keeps the last good one and says why there is no newer; it ends nothing.
- One thread a source: a source that hangs makes nobody else wait.
- Reading takes a fifth of a source's time at most: what takes long is read less often.
- Nobody pays for what nobody looks at: a source that no page has asked for a while is read seldom,
  and again at once when one does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headworks.errors import HeadworksError

__all__ = ["Reading", "SourceState", "Watched"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_FIRST_PATIENCE = 0.2
_SHARE = 4
_AGAIN = 1.0
_UNSEEN = 15.0  # three renewals of an open page
_SELDOM = 60.0


@dataclass(frozen=True, slots=True)
class SourceState:
    """How fresh a source is: the age of the last good reading, and what is wrong since."""

    name: str
    age_seconds: float | None
    problem: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What a source said last; `value` is None before it said anything."""

    value: T | None
    state: SourceState


class Watched(Generic[T]):
    """Calls `read` every `every` seconds once started, or every `seldom` seconds while nobody has
    asked for `latest` in the last `unseen` ones; `latest` never waits long.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], T],
        *,
        every: float,
        unseen: float = _UNSEEN,
        seldom: float = _SELDOM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._read = read
        self._every = every
        self._unseen, self._seldom = unseen, seldom
        self._clock = clock
        self._value: T | None = None
        self._taken: float | None = None
        self._problem: HeadworksError | None = None
        self._started = self._asked = clock()
        self._tried = threading.Event()
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Begin to read, in a thread of its own."""
        self._started = self._asked = self._clock()
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; a reading that is under way is not waited for."""
        self._stopped.set()
        self._wanted.set()

    def refresh(self) -> None:
        """Read once, now; a failure is kept, not raised."""
        try:
            self._value = self._read()
            self._taken, self._problem = self._clock(), None
        except HeadworksError as error:
            self._problem = error
        except Exception as error:  # a fault of ours must not end the watching
            _LOG.exception("reading %s failed", self.name)
            self._problem = HeadworksError(f"{self.name} could not be read: {error}")
        finally:
            self._tried.set()

    @property
    def latest(self) -> Reading[T]:
        """The last reading; before the first one, wait for it a little after the start."""
        self._asked = self._clock()
        self._wanted.set()
        if not self._tried.is_set() and self._thread.is_alive():
            self._tried.wait(max(0.0, self._started + _FIRST_PATIENCE - self._asked))
        age = None if self._taken is None else round(max(0.0, self._clock() - self._taken), 1)
        problem = self._problem
        if problem is None:
            return Reading(self._value, SourceState(self.name, age))
        return Reading(self._value, SourceState(self.name, age, problem.message, problem.fix))

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = self._clock()
            self.refresh()
            spent = self._clock() - began
            pause = max(self._every, spent * _SHARE)
            if self._taken is None:  # until it has answered once, it may just be starting
                pause = max(_AGAIN, spent)
            self._stopped.wait(pause)
            self._wanted.clear()
            if self._taken is not None and not self._looked_at() and not self._stopped.is_set():
                self._wanted.wait(max(0.0, self._seldom - pause))

    def _looked_at(self) -> bool:
        return self._clock() - self._asked < self._unseen
