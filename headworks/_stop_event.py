"""An event that a handler of a signal may set, while its own thread waits for it.

A handler runs in the main thread, between any two steps of it. `threading.Event.wait` holds a lock
that `set` needs. A handler that sets such an event at that moment waits for its own thread, so the
process never ends.

Rules: no method waits for the thread that calls it. A `set` that comes while the same thread begins
to wait ends that wait after half a second at most.
"""

from __future__ import annotations

import threading
import time

_SLICE_SECONDS = 0.5


class StopEvent(threading.Event):
    """As `threading.Event`; `set` is safe in handlers of signals."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition(threading.RLock())
        self._happened = False

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._happened

    def set(self) -> None:
        """Set it, and wake all threads that wait."""
        with self._changed:
            self._happened = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Reset it."""
        self._happened = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for `timeout` seconds at most; return whether it is."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._happened:
                left = _SLICE_SECONDS if end is None else end - time.monotonic()
                if left <= 0:
                    break
                # A handler may have set it since the loop's condition, before this is a waiter.
                self._changed.wait(min(left, _SLICE_SECONDS))
            return self._happened
