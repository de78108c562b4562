"""Until when this process may take itself for a member: as long as ZooKeeper surely keeps it.

Rules:

- The servers end a session when they have heard nothing for its timeout. So an answer to a question
  asked at T proves that nobody else can own what we own before T + timeout; after that nothing is
  delivered until the next answer, whatever the reason: no network, no ZooKeeper, a stopped process.
- The clock goes on while the process is stopped. What runs first when it goes on is not known, so
  every delivery looks at the clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Lease"]

_ASKS = 4  # times within a timeout


class Lease:
    """Asks `alive` again and again, in a thread of its own; `ended` is called once it says no."""

    def __init__(
        self,
        timeout: float,
        alive: Callable[[], bool],
        ended: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = timeout
        self._alive = alive
        self._ended = ended
        self._clock = clock
        self._until = 0.0
        self._over = threading.Event()
        self.ask()
        self._thread = threading.Thread(target=self._run, name="headworks-lease", daemon=True)
        self._thread.start()

    @property
    def valid(self) -> bool:
        """Whether what this member owns cannot be anyone else's now."""
        return self._clock() < self._until and not self._over.is_set()

    @property
    def ended(self) -> bool:
        """Whether it will never be valid again."""
        return self._over.is_set()

    def end(self) -> None:
        """It is not valid any more, and never again."""
        self._over.set()

    def ask(self) -> None:
        """Ask now; kazoo's exceptions if ZooKeeper does not answer."""
        asked = self._clock()
        if self._alive():
            self._until = asked + self._timeout
        elif not self._over.is_set():
            self.end()
            self._ended()

    def _run(self) -> None:
        while not self._over.wait(self._timeout / _ASKS):
            try:
                self.ask()
            except Exception:  # no answer: time passes, which is what ends it
                continue
