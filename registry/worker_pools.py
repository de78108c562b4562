"""Threads for the routes that can take long, so that no kind of work keeps another one waiting.

A comparison of two large schemas takes seconds. If comparisons could fill the threads that also
read schemas by id, a few clients would stop all others.

Rules:

- Each kind of work has threads of its own. The framework's threads serve the other routes.
- A request waits for a thread in a queue and occupies none. A full queue refuses it with a 503 and
  a `Retry-After`, before anything is decided.
- Work that turns out to be of another kind is handed over to that kind's threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from types import MappingProxyType
from typing import Final

from fastapi import Response

from headworks._registry.model import refusals

LOOKUPS: Final = "lookups"  # of a schema in a subject, also before a registration
CHECKS: Final = "checks"  # of compatibility, and dry runs
CHANGES: Final = "changes"  # of schemas and versions, one at a time in the store
MAX_WAITING: Final = 200  # requests in the queue of one pool
_CHANGE_THREADS = 32  # they wait for each other's flush, and are flushed together
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The rest of a request, which another pool runs."""

    pool: WorkerPool
    work: Work


Work = Callable[[], Response | HandedOver]


class WorkerPool:
    """Some threads and their queue; it is used on one event loop."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.refused = 0  # requests that found the queue full
        self._most = threads + MAX_WAITING
        self._jobs = SimpleQueue[_Job | None]()
        self._lock = Lock()  # guards the next lines
        self._unfinished = 0  # jobs that wait or run
        self._threads: list[Thread] = []
        self._most_threads = threads

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a thread."""
        return max(self._unfinished - self._most_threads, 0)

    async def run(self, work: Work) -> Response:
        """Run the work in a thread, and return its response; ServiceError 503 if too many wait."""
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future())
        self._put(job)
        return await job.response

    def hand_over(self, work: Work) -> HandedOver:
        """Return the rest of another pool's work, for this one to run."""
        return HandedOver(self, work)

    def close(self) -> None:
        """Let the threads end; those that are busy have a second."""
        for _ in self._threads:
            self._jobs.put(None)
        for one in self._threads:
            one.join(_CLOSE_SECONDS)

    def _put(self, job: _Job) -> None:
        with self._lock:
            if self._unfinished >= self._most:
                self.refused += 1
                raise refusals.too_busy(self.name, self._unfinished)
            self._unfinished += 1
            if self._unfinished > len(self._threads) < self._most_threads:
                name = f"registry-{self.name}-{len(self._threads)}"
                # A thread that hangs must not keep the process.
                thread = Thread(target=self._run_jobs, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put(job)

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                result = job.work()
                if isinstance(result, HandedOver):
                    result.pool._put(_Job(result.work, job.loop, job.response))
                else:
                    job.end(result)
            except BaseException as error:
                job.end(error)
            with self._lock:
                self._unfinished -= 1
            del job  # an idle thread keeps no request


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work
    loop: asyncio.AbstractEventLoop
    response: asyncio.Future[Response]

    def end(self, result: Response | BaseException) -> None:
        """Give the result to the request, which may have been cancelled."""
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self.loop.call_soon_threadsafe(_settle, self.response, result)


def _settle(response: asyncio.Future[Response], result: Response | BaseException) -> None:
    if response.done():
        return
    if isinstance(result, StopIteration):  # a future takes none
        response.set_exception(RuntimeError("the work raised StopIteration"))
    elif isinstance(result, BaseException):
        response.set_exception(result)
    else:
        response.set_result(result)


def worker_pools(useful_readers: int) -> Mapping[str, WorkerPool]:
    """Return the pools by kind of work; the store gains by so many readers at a time."""
    threads = {LOOKUPS: useful_readers, CHECKS: useful_readers, CHANGES: _CHANGE_THREADS}
    return MappingProxyType({name: WorkerPool(name, count) for name, count in threads.items()})
