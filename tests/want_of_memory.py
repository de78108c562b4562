"""Failing allocations, in a process of their own.

A failure is injected below Python's allocators, for all threads. So it must never happen in a
process with other threads: the one that talks to pytest would fail, and the whole run would hang.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import TypeVar

import pytest

_T = TypeVar("_T")


def in_a_process(check: Callable[[], None]) -> None:
    """Run a check in a forked process, which has no other thread; fail as it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            check()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-60_000:])  # a pipe holds that much
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with open(reading) as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    if status:
        pytest.fail(f"status {status} of the process: {text}")


def fail_each_allocation(
    call: Callable[[], _T],
    *,
    least: int,
    calls: int = 400,
    check: Callable[[_T], None] | None = None,
) -> None:
    """Fail the first, second, ... allocation of a call, `calls` times, in a process of its own.

    Each result, and that of the call after each failure, is given to `check`, or must be as the
    first one. No result is None. More than `least` of the calls must raise MemoryError.
    """
    testcapi = pytest.importorskip("_testcapi")
    expected = call()

    def same(found: _T) -> None:
        assert found == expected

    def all_of_them() -> None:
        failed, found = 0, None
        for first in range(calls):
            testcapi.set_nomemory(first, first + 1)
            try:
                found = call()
            except MemoryError:
                failed += 1
                found = None
            finally:
                testcapi.remove_mem_hooks()
            (check or same)(call() if found is None else found)
        assert failed > least, failed

    in_a_process(all_of_them)
