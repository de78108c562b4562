"""Blocking calls of coroutines, in threads that do not outlive them.

Rule: a task that is cancelled ends when the thread has returned, never before. Otherwise the thread
would commit, write, or open something later, without anybody who knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do what `asyncio.to_thread` does; raise CancelledError only after the thread's return.

    The function's result or error is then lost.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not call.done():
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return call.result()
    call.exception()  # or asyncio logs that nobody asked for it
    raise cancelled
