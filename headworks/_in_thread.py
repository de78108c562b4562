"""Blocking calls of coroutines, in threads that do not outlive them.

Rule: a task that is cancelled ends when the thread has returned, never before. Otherwise the thread
would commit, write, or open something later, without anybody who knows.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do what `asyncio.to_thread` does; raise CancelledError only after the thread's return.

    The function's result or error is then lost.
    """
    # This is no task: when a loop ends, `asyncio.run` cancels all tasks, and a cancelled task of
    # `to_thread` would be done while its thread still runs.
    inside = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    call = asyncio.get_running_loop().run_in_executor(None, inside)
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
