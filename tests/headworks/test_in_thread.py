"""A thread of a coroutine ends before the coroutine does, however it is cancelled."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from headworks._in_thread import in_thread

pytestmark = pytest.mark.unit


class Work:
    """A function that begins, and returns or raises once it may."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began, self.may = threading.Event(), threading.Event()
        self.has_ended = False
        self._error = error

    def do(self, number: int, *, more: int = 0) -> int:
        self.began.set()
        self.may.wait(60)
        self.has_ended = True
        if self._error is not None:
            raise self._error
        return number + more


def test_it_returns_and_raises_what_the_function_does() -> None:
    work, failing = Work(), Work(KeyError("x"))
    work.may.set()
    failing.may.set()
    assert asyncio.run(in_thread(work.do, 1, more=2)) == 3
    with pytest.raises(KeyError):
        asyncio.run(in_thread(failing.do, 1))


@pytest.mark.parametrize("error", [None, KeyError("x")])
@pytest.mark.parametrize("times", [1, 3])
def test_a_cancelled_call_ends_after_its_thread(error: Exception | None, times: int) -> None:
    async def cancel() -> None:
        work = Work(error)
        call = asyncio.create_task(in_thread(work.do, 1))
        await asyncio.to_thread(work.began.wait, 60)
        for _ in range(times):
            call.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not call.done()
        work.may.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert work.has_ended

    asyncio.run(cancel())


def test_a_timeout_is_a_timeout() -> None:
    async def wait() -> None:
        work = Work()
        asyncio.get_running_loop().call_later(0.1, work.may.set)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await in_thread(work.do, 1)
        assert work.has_ended

    asyncio.run(wait())


def test_a_loop_that_ends_waits_for_the_thread() -> None:
    work, ended = Work(), list[bool]()

    async def call() -> None:
        try:
            await in_thread(work.do, 1)
        finally:
            ended.append(work.has_ended)

    async def leave() -> asyncio.Task[None]:
        left = asyncio.create_task(call())
        await asyncio.to_thread(work.began.wait, 60)
        asyncio.get_running_loop().call_later(0.05, work.may.set)
        return left  # asyncio.run cancels it, and every other task

    assert asyncio.run(leave()).cancelled()
    assert ended == [True]


def test_the_thread_sees_the_context_of_the_caller() -> None:
    name = contextvars.ContextVar("name", default="none")

    async def read() -> str:
        name.set("caller")
        return await in_thread(name.get)

    assert asyncio.run(read()) == "caller"
