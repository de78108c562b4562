"""Compaction beside the serving: when, which partition, and how fast.

Rules:

- One partition at a time, the dirtiest first, in a thread of its own that rests as long as it
  works, so that the event loop is never kept waiting for it.
- The thread changes files; what the log serves is changed by the loop. While a partition is
  compacted its sealed segments are held. Stopping, and deleting a topic, wait for the thread to let
  go, which it does between two records.
- A damaged batch, or a change that was not finished, ends the compaction of that partition until
  the broker is started again; a full disk is tried again later. Serving goes on in every case.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Event, Thread
from weakref import WeakKeyDictionary

from headworks._broker.log.compaction import DEFAULT_MEMORY_BYTES, Plan, Swap, compact, plan
from headworks._broker.topics.partition import HostedPartition
from headworks.errors import HeadworksError

__all__ = ["CompactionCounters", "Compactor"]

_log = logging.getLogger(__name__)
_WORK_SECONDS = 0.005
_LOG_INTERVAL_SECONDS = 300.0  # after a disk that was full
_NEVER = float("inf")


@dataclass(slots=True)
class CompactionCounters:
    """Counted since the start; only grow."""

    runs: int = 0
    failures: int = 0
    seconds: float = 0.0
    read_bytes: int = 0
    freed_bytes: int = 0


class _StoppedError(Exception):
    """The thread was asked to let go."""


class Compactor:
    """Looks every `interval` seconds for what is due, once it is started."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[HostedPartition]],
        *,
        interval: float,
        clock: Callable[[], float] = time.time,
        memory: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        self.counters = CompactionCounters()
        self._partitions = partitions
        self._interval = interval
        self._clock = clock
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._compacting: HostedPartition | None = None
        self._thread: Thread | None = None
        self._stop = Event()
        self._not_before: WeakKeyDictionary[HostedPartition, float] = WeakKeyDictionary()

    def start(self) -> None:
        """Look for work from now on."""
        self._timer = self._loop.call_later(self._interval, self._tick)

    def stop(self) -> None:
        """Let go of everything; what was compacted wholly stays so."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    async def release(self, partition: HostedPartition) -> None:
        """Return when `partition`, which has ended, is not being compacted."""
        if self._compacting is partition and self._thread is not None:
            self._stop.set()
            await asyncio.to_thread(self._thread.join)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._tick)
        now_ms = int(self._clock() * 1000)
        for partition in self._partitions():
            partition.roll_when_due(now_ms)
        self._next(now_ms)

    def _next(self, now_ms: int) -> None:
        """Begin with the dirtiest partition that is due, unless one is being compacted."""
        if self._compacting is not None or self._timer is None:
            return
        best: tuple[float, HostedPartition, Plan] | None = None
        now = self._loop.time()
        for partition in self._partitions():
            if partition.failure is not None or self._not_before.get(partition, 0.0) > now:
                continue
            found = plan(partition.log, now_ms)
            if found is not None and (best is None or found.ratio > best[0]):
                best = (found.ratio, partition, found)
        if best is None:
            return
        _, partition, due = best
        self._compacting = partition
        partition.log.compacting = True
        self._stop = Event()
        self._thread = Thread(
            target=self._run, args=(partition, due, now_ms), name="compactor", daemon=True
        )
        self._thread.start()

    def _run(self, partition: HostedPartition, due: Plan, now_ms: int) -> None:
        """In the thread."""
        began, error = time.monotonic(), None
        try:
            for swap in compact(due, now_ms=now_ms, throttle=self._throttle(), memory=self._memory):
                self._loop.call_soon_threadsafe(self._swapped, partition, swap)
        except Exception as failure:
            error = failure
        size = sum(segment.size for segment in due.segments)
        seconds = time.monotonic() - began
        self._loop.call_soon_threadsafe(self._done, partition, size, seconds, error)

    def _throttle(self) -> Callable[[], None]:
        """What the thread calls every few records: lets the loop in, rests as long as it worked."""
        stop, since = self._stop, time.monotonic()

        def throttle() -> None:
            nonlocal since
            time.sleep(0)  # the loop may be waiting for the interpreter's lock
            if time.monotonic() - since > _WORK_SECONDS:
                if stop.wait(_WORK_SECONDS):
                    raise _StoppedError
                since = time.monotonic()

        return throttle

    def _swapped(self, partition: HostedPartition, swap: Swap) -> None:
        partition.log.swap(*swap)
        if swap.new is not None:
            freed = sum(segment.size for segment in swap.old) - swap.new.size
            self.counters.freed_bytes += freed

    def _done(
        self, partition: HostedPartition, size: int, seconds: float, error: Exception | None
    ) -> None:
        partition.log.compacting = False
        self._compacting = self._thread = None
        counters = self.counters
        counters.runs += 1
        counters.seconds += seconds
        if error is None:
            counters.read_bytes += size
            about = partition.about | {"bytes": size, "seconds": seconds}
            _log.info("%s: compacted %d bytes in %.1f s", partition, size, seconds, extra=about)
        elif not isinstance(error, _StoppedError):
            counters.failures += 1
            self._failed(partition, error)
        if self._timer is not None:
            self._next(int(self._clock() * 1000))

    def _failed(self, partition: HostedPartition, error: Exception) -> None:
        again = isinstance(error, OSError)
        pause = _LOG_INTERVAL_SECONDS if again else _NEVER
        self._not_before[partition] = self._loop.time() + pause
        then = f"again in {pause:.0f} s" if again else "not again before the next start"
        expected = again or isinstance(error, HeadworksError)
        _log.error(
            "%s: compaction failed, %s: %s",
            partition,
            then,
            error,
            exc_info=not expected or None,
            extra=partition.about,
        )
