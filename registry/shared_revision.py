"""The store's revision, read once for all requests that wait for it.

A request that is answered from memory must not get an answer that is older than itself. It gets a
revision whose reading began after it had come. Under load one reading serves many requests, and
each saves the way to a thread and back.

Rules:

- A request waits on the event loop, and occupies no thread. At most MAX_WAITING wait: a database
  that hangs must not gather requests.
- The requests of one reading go on one after the other, and others are served in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

MAX_WAITING: Final = 200  # requests


class SharedRevision:
    """Reads the revision in a thread; it is used on one event loop."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._waiting: list[asyncio.Future[int]] = []  # for the next reading
        self._unanswered = 0  # requests that wait for this reading or the next
        self._task: asyncio.Task[None] | None = None  # reads while requests wait

    async def now(self) -> int | None:
        """Return a revision that the store has after this call; raises the store's errors.

        None: too many requests wait already.
        """
        if self._unanswered >= MAX_WAITING:
            return None
        revision: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(revision)
        if self._task is None:
            self._task = asyncio.create_task(self._serve())
        self._unanswered += 1
        try:
            return await revision
        finally:
            self._unanswered -= 1

    async def _serve(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                try:
                    found: int | Exception = await asyncio.to_thread(self._read)
                except Exception as error:
                    found = error
                await _answer(waiting, found)
        finally:
            self._task = None


async def _answer(waiting: list[asyncio.Future[int]], found: int | Exception) -> None:
    for one in waiting:
        if one.done():
            continue  # its request was cancelled
        if isinstance(found, Exception):
            one.set_exception(found)
        else:
            one.set_result(found)
        await asyncio.sleep(0)
