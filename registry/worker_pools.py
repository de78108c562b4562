"""Threads for the routes that can take long, so that no kind of work keeps another one waiting.

A comparison of two large schemas takes seconds. If comparisons could fill the threads that also
read schemas by id, a few clients would stop all others.

Rules:

- Each kind of work has threads of its own. The framework's threads serve the other routes.
- A request waits for a thread in a queue and occupies none. A full queue refuses it with a 503 and
  a `Retry-After`, before anything is decided.
- Work that turns out to be of another kind is handed over to that kind's threads.
- Work whose request was cancelled is skipped. A pool that closes ends the requests that wait.
- Changes are made by one thread. Those that wait share a transaction of the store, and none is
  acknowledged before it is flushed.
- A short piece of work may run in that thread before the transaction, and hand its rest over to the
  same thread. Going from thread to thread would cost more than the work, because threads wait for
  the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from types import MappingProxyType
from typing import Final

from fastapi import Response

from headworks._registry.model import refusals

LOOKUPS: Final = "lookups"  # of a schema in a subject, also before a registration
CHECKS: Final = "checks"  # of compatibility, and dry runs
CHANGES: Final = "changes"  # of schemas and versions, one at a time in the store
MAX_WAITING: Final = 200  # requests in the queue of one pool
_MAX_TOGETHER = 64  # changes in one transaction
_MAX_SECONDS_TOGETHER = 0.05  # after which no further one begins
_PROMPT_SECONDS = 0.1  # a thread that is busy for longer may be stuck
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The rest of a request, which another pool runs."""

    pool: WorkerPool
    work: Work


Work = Callable[[], Response | HandedOver]


_Result = Response | HandedOver | BaseException
Together = Callable[[], AbstractContextManager[None]]


class WorkerPool:
    """Some threads and their queue; it is used on one event loop.

    A pool that has `together` has one thread, which runs what waits inside of that. If it raises,
    all of the work has failed. Work that begins before that runs inside of `before`.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        together: Together | None = None,
        before: Together = nullcontext,
    ) -> None:
        self._together = together
        self._before = before
        self.name = name
        self.refused = 0  # requests that found the queue full
        self._most = threads + MAX_WAITING
        self._jobs = SimpleQueue[_Job | None]()
        self._lock = Lock()  # guards the next lines
        self._unfinished = 0  # jobs that wait or run
        self._threads: list[Thread] = []
        self._most_threads = threads
        self._closing = False
        self._busy_since: float | None = None  # of the one thread, if it has begun something

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a thread."""
        return max(self._unfinished - self._most_threads, 0)

    @property
    def is_prompt(self) -> bool:
        """Whether the one thread comes to further work soon."""
        since = self._busy_since
        is_stuck = since is not None and time.monotonic() - since > _PROMPT_SECONDS
        return not is_stuck and self._unfinished < MAX_WAITING // 2

    async def run(self, work: Work, *, before: bool = False) -> Response:
        """Run the work in a thread, and return its response; ServiceError 503 if too many wait.

        With `before`, work that is short begins before the next `together`. It may hand over its
        rest to this pool, and that runs inside.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future(), before)
        self._put(job)
        return await job.response

    def hand_over(self, work: Work) -> HandedOver:
        """Return the rest of another pool's work, for this one to run."""
        return HandedOver(self, work)

    def close(self) -> None:
        """Refuse what waits, and let the threads end; those that are busy have a second."""
        with self._lock:
            self._closing = True
        for _ in self._threads:
            self._jobs.put(None)
        for one in self._threads:
            one.join(_CLOSE_SECONDS)

    def _put(self, job: _Job) -> None:
        with self._lock:
            if self._closing or self._unfinished >= self._most:
                self.refused += 1
                raise refusals.too_busy(self.name, self._unfinished)
            if self._unfinished >= len(self._threads) < self._most_threads:
                name = f"registry-{self.name}-{len(self._threads)}"
                # A thread that hangs must not keep the process.
                thread = Thread(target=self._run_jobs, name=name, daemon=True)
                thread.start()  # it fails if the process may have no more of them
                self._threads.append(thread)
            self._unfinished += 1
        self._jobs.put(job)

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._together is None:
                self._end([(job, self._result(job))])
            else:
                self._busy_since = time.monotonic()
                ready = self._begin_waiting(job)
                while ready:
                    self._busy_since = time.monotonic()
                    ready = self._run_together(self._together, ready)
                self._busy_since = None
            del job  # an idle thread keeps no request

    def _begin_waiting(self, first: _Job) -> list[_Job]:
        """Begin what waits; return what is to run inside of `together`."""
        ready: list[_Job] = []
        ended: list[tuple[_Job, _Result]] = []
        jobs, until = [first], time.monotonic() + _MAX_SECONDS_TOGETHER
        with self._before():
            while jobs:
                job = jobs.pop()
                if not job.before:
                    ready.append(job)
                elif isinstance(result := self._result(job), HandedOver) and result.pool is self:
                    ready.append(_Job(result.work, job.loop, job.response))
                else:
                    ended.append((job, result))
                if len(ready) < _MAX_TOGETHER and time.monotonic() < until:
                    jobs = self._waiting_job()
        self._end(ended)
        return ready

    def _run_together(self, together: Together, jobs: list[_Job]) -> list[_Job]:
        """Run the first jobs inside of `together`; return the others."""
        results: list[tuple[_Job, _Result]] = []
        until = time.monotonic() + _MAX_SECONDS_TOGETHER
        try:
            with together():
                for job in jobs:
                    results.append((job, self._result(job)))
                    if time.monotonic() >= until:
                        break
        except BaseException as error:
            failed = results or [(job, error) for job in jobs]
            results = [
                (job, result if isinstance(result, BaseException) else error)
                for job, result in failed
            ]
        self._end(results)
        return jobs[len(results) :]

    def _end(self, results: Sequence[tuple[_Job, _Result]]) -> None:
        if results:
            with self._lock:
                self._unfinished -= len(results)
            _finish(results)

    def _waiting_job(self) -> list[_Job]:
        """Return one job that waits, if there is any."""
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return []
        if job is None:  # the order to end: it comes after this transaction
            self._jobs.put(None)
            return []
        return [job]

    def take_over(self, job: _Job, work: Work) -> None:
        """Run the rest of another pool's job."""
        try:
            self._put(_Job(work, job.loop, job.response))
        except Exception as error:  # the request waits for an end in any case
            _finish([(job, error)])

    def _result(self, job: _Job) -> _Result:
        if self._closing or job.response.cancelled():
            return refusals.too_busy(self.name, self._unfinished)
        try:
            return job.work()
        except BaseException as error:
            return error


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work
    loop: asyncio.AbstractEventLoop
    response: asyncio.Future[Response]
    before: bool = False  # whether it begins before `together`


def _finish(results: Sequence[tuple[_Job, _Result]]) -> None:
    """Hand over what goes on elsewhere, and give the other results to their requests.

    The loop is woken once for all of them, because each time costs the interpreter's lock.
    """
    ended: list[tuple[asyncio.Future[Response], Response | BaseException]] = []
    for job, result in results:
        if isinstance(result, HandedOver):
            result.pool.take_over(job, result.work)
        else:
            ended.append((job.response, result))
    if ended:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            results[0][0].loop.call_soon_threadsafe(_settle, ended)


def _settle(ended: list[tuple[asyncio.Future[Response], Response | BaseException]]) -> None:
    for response, result in ended:
        if response.done():  # the request was cancelled
            continue
        if isinstance(result, StopIteration):  # a future takes none
            response.set_exception(RuntimeError("the work raised StopIteration"))
        elif isinstance(result, BaseException):
            response.set_exception(result)
        else:
            response.set_result(result)


def worker_pools(
    useful_readers: int, together: Together, looking: Together
) -> Mapping[str, WorkerPool]:
    """Return the pools by kind of work.

    The store gains by so many readers at a time. Its writers are flushed `together`, and what is
    short looks at the store inside of `looking`.
    """
    pools = (
        WorkerPool(LOOKUPS, useful_readers),
        WorkerPool(CHECKS, useful_readers),
        WorkerPool(CHANGES, 1, together, looking),
    )
    return MappingProxyType({pool.name: pool for pool in pools})
