"""The compactor: when to compact, which partition, and how fast.

Rules:

- It compacts one partition at a time, the dirtiest first, in a thread of its own. The thread rests
  as long as it works, so that the event loop never waits for it.
- The thread writes files; only the loop changes what a log serves. While a partition is compacted,
  `PartitionLog.compacting` keeps its segments. A stop of the broker and the deletion of the topic
  wait for the thread, which stops between two records.
- After a damaged batch or an unfinished swap, the partition is not compacted again until the broker
  restarts. After a full disk, the compactor retries later. The partition is served in every case.
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

_log = logging.getLogger(__name__)
_WORK_SECONDS = 0.005
_LOG_INTERVAL_SECONDS = 300.0  # after a full disk
_NEVER = float("inf")


@dataclass(slots=True)
class CompactionCounters:
    """Counters since the start of the broker."""

    runs: int = 0  # compactions of a partition
    failures: int = 0  # of them
    seconds: float = 0.0  # in the thread
    read_bytes: int = 0  # of segments that were compacted
    freed_bytes: int = 0  # by swaps


class _StoppedError(Exception):
    """The thread must stop."""


class Compactor:
    """Compacts due partitions, and looks for them every `interval` seconds."""

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
        self._compacting: HostedPartition | None = None  # the partition in the thread
        self._thread: Thread | None = None
        self._stop = Event()  # tells the thread to stop
        # when a partition that failed may be compacted again, by the time of the loop
        self._not_before: WeakKeyDictionary[HostedPartition, float] = WeakKeyDictionary()

    def start(self) -> None:
        """Start looking for due partitions."""
        self._timer = self._loop.call_later(self._interval, self._tick)

    def stop(self) -> None:
        """Stop, and wait for the thread. Finished swaps stay."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    async def release(self, partition: HostedPartition) -> None:
        """Wait until a stopped partition is not being compacted."""
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
        """Start with the dirtiest due partition, unless one is being compacted."""
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
        """Compact a partition; runs in the thread."""
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
        """Return a function that yields to the loop, and rests as long as the thread worked."""
        stop, since = self._stop, time.monotonic()

        def throttle() -> None:
            nonlocal since
            time.sleep(0)  # the loop may wait for the interpreter lock
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
        then = f"retry in {pause:.0f} s" if again else "no retry before the next start"
        expected = again or isinstance(error, HeadworksError)
        _log.error(
            "%s: compaction failed, %s: %s",
            partition,
            then,
            error,
            exc_info=not expected or None,
            extra=partition.about,
        )
