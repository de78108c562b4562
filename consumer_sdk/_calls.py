"""The threads that call one handler, and the tasks of an event loop that do so.

Rules: each is started when all others are at work, and there are no more than calls at once. One
takes message after message, and lets the next one work if more are ready. So one of them makes the
calls that are quick, without a change of threads or tasks for each message.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, suppress

from consumer_sdk._lanes import Handed, LaneKey, Lanes
from consumer_sdk._retry import Handler

ROOM_SECONDS = 0.2  # how long other partitions wait for room with one, before that is paused
_MOST_UNWOKEN = 8  # messages that wait for a thread because the next one may need no waiting


class Workers:
    """The threads that call one handler. `handle` must not raise."""

    def __init__(
        self, handle: Callable[[Handed], None], lanes: Lanes, calls: int, stack: ExitStack
    ) -> None:
        self._handle, self._lanes, self._calls = handle, lanes, calls
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        self._added = 0  # since the last `wake`
        stack.callback(self._close)

    def add(self, handed: Handed) -> None:
        """Let a thread handle a message, after those before it in its lane, from `wake` on."""
        self._lanes.add(handed)
        self._added += 1
        if self._added >= _MOST_UNWOKEN:
            self.wake()

    def wake(self) -> None:
        """Let one more thread work, if messages are ready."""
        self._added = 0
        if self._lanes.is_ready and self._lanes.wake():
            with self._starting:
                if len(self._threads) < self._calls:
                    thread = threading.Thread(target=self._work, name="headworks-handler")
                    thread.start()
                    self._threads.append(thread)

    def _work(self) -> None:
        handed: Handed | None = None
        while (handed := self._lanes.take(handed)) is not None:
            if self._lanes.is_ready:
                self.wake()
            self._handle(handed)

    def _close(self) -> None:
        """Wait for the calls that run, and for the messages that wait."""
        self.wake()
        self._lanes.close()
        for thread in self._threads:
            thread.join()


class Tasks:
    """The tasks that call one handler. `handle` raises only if its task is cancelled."""

    def __init__(
        self, handle: Callable[[Handed], Awaitable[None]], lanes: Lanes, calls: int
    ) -> None:
        self._handle, self._lanes, self._calls = handle, lanes, calls
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_starting = False  # whether a task has not run yet
        self._wanted: LaneKey | None = None  # in which the dispatcher waits for room
        self._room = asyncio.Event()

    async def wait(self, lane: LaneKey) -> bool:
        """Do what `Lanes.wait_for_room` does, but let the event loop run meanwhile."""
        self._wanted = lane
        self._room.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._room.wait(), ROOM_SECONDS)
        self._wanted = None
        return self._lanes.has_room(lane)

    def add(self, handed: Handed) -> None:
        """Let a task handle a message, after those before it in its lane, from `wake` on."""
        self._lanes.add(handed)

    def wake(self) -> None:
        """Let one more task work, if messages are ready."""
        is_free = len(self._tasks) < self._calls and not self._is_starting
        if is_free and self._lanes.is_ready:
            self._is_starting = True
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        self._is_starting = False
        handed: Handed | None = None
        while (handed := self._lanes.next(handed)) is not None:
            self._look_for_room()
            if self._lanes.is_ready:
                self.wake()
            await self._handle(handed)
        self._look_for_room()

    def _look_for_room(self) -> None:
        if self._wanted is not None and self._lanes.has_much_room(self._wanted):
            self._room.set()

    async def wait_until_empty(self, seconds: float | None) -> bool:
        """Wait up to `seconds` for the calls that run; return whether there is none any more."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        return not self._tasks


async def wait_for_all(workers: Iterable[Tasks]) -> None:
    """Wait until no call runs, and no message waits."""
    for tasks in workers:
        while not await tasks.wait_until_empty(None):
            pass


def wake(workers: Mapping[Handler, Workers | Tasks]) -> None:
    """Let messages that were added be handled; call this before anything that waits."""
    for each in workers.values():
        each.wake()
