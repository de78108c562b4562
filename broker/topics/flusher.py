"""The flusher thread, which flushes logs so that the event loop never waits for a disk.

Rules:

- Several requests for one log that arrive during a flush are served by one flush (group commit).
- Results return to the loop in order.
- The thread calls nothing of a log but `sync`, and reports to `took` how many seconds each took.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from headworks._broker.log import FlushFailedError


class Flushable(Protocol):
    """Something that `sync` flushes to disk."""

    def sync(self) -> Any:
        """Flush; runs in the flusher thread. May raise FlushFailedError."""


_Done = Callable[[Any, FlushFailedError | None], None]


class Flusher:
    """A thread that starts at once and flushes on request."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        took: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._loop = loop
        self._took = took
        self._wanted: dict[Flushable, _Done] = {}  # requested flushes, guarded by the condition
        self._condition = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._thread.start()

    def request(self, log: Flushable, done: _Done) -> None:
        """Flush `log` soon, then call `done(result, error)` in the loop."""
        with self._condition:
            self._wanted[log] = done
            self._condition.notify()

    def stop(self) -> None:
        """Finish the requested flushes, and end the thread."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._wanted and not self._stopping:
                    self._condition.wait()
                if not self._wanted:
                    return
                round_, self._wanted = self._wanted, {}
            for log, done in round_.items():
                result, error = None, None
                began = time.perf_counter()
                try:
                    result = log.sync()
                except FlushFailedError as failure:
                    error = failure
                self._took(time.perf_counter() - began)
                self._loop.call_soon_threadsafe(done, result, error)
