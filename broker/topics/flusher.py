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
from queue import SimpleQueue
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
        self._requests: SimpleQueue[tuple[Flushable, _Done] | None] = SimpleQueue()  # None: stop
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._thread.start()

    def request(self, log: Flushable, done: _Done) -> None:
        """Flush `log` soon, then call `done(result, error)` in the loop."""
        self._requests.put((log, done))

    def stop(self) -> None:
        """Finish the requested flushes, and end the thread."""
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        requests = self._requests
        wanted: list[tuple[Flushable, _Done] | None] = []
        while None not in wanted:
            wanted = [requests.get()]
            while not requests.empty():
                wanted.append(requests.get())
            for log, done in dict(filter(None, wanted)).items():
                self._flush(log, done)

    def _flush(self, log: Flushable, done: _Done) -> None:
        result, error = None, None
        began = time.perf_counter()
        try:
            result = log.sync()
        except FlushFailedError as failure:
            error = failure
        self._took(time.perf_counter() - began)
        self._loop.call_soon_threadsafe(done, result, error)
