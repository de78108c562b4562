"""Messages that wait for a handler: their order, and the threads and tasks that take them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack

import pytest

from consumer_sdk import Message, OnPoison
from consumer_sdk._calls import Tasks, Workers, wait_for_all
from consumer_sdk._lanes import Handed, Lanes, lane_of
from consumer_sdk._retry import handler_of

pytestmark = pytest.mark.unit

CALLS = 3
HANDLER = handler_of(lambda _: None, None, OnPoison.STOP, concurrency=CALLS, is_async=False)
_SECONDS = 30.0


def handed(key: str, offset: int) -> Handed:
    message = Message(offset, "t", 0, offset, 0, key.encode(), (), 1, 1)
    return Handed(HANDLER, message, offset, lane_of(HANDLER, message))


def offsets(lanes: Lanes) -> list[int]:
    """Handle all by one call."""
    found, last = [], None
    while (last := lanes.next(last)) is not None:
        found.append(last.message.offset)
    return found


def test_a_lane_is_handled_in_its_order_and_keeps_no_call_for_itself() -> None:
    lanes = Lanes(CALLS)
    for key, offset in (("a", 0), ("a", 1), ("a", 2), ("b", 3), ("c", 4), ("b", 5)):
        lanes.add(handed(key, offset))
    assert offsets(lanes) == [0, 3, 4, 1, 5, 2]
    assert lanes.wait_until_empty(0)


def test_a_lane_of_which_a_message_is_handled_is_not_ready() -> None:
    lanes = Lanes(CALLS)
    first = handed("a", 0)
    lanes.add(first)
    assert lanes.next(None) is first
    lanes.add(handed("a", 1))
    assert not lanes.is_ready
    assert lanes.next(None) is None
    assert not lanes.wait_until_empty(0)
    second = lanes.next(first)
    assert second is not None
    assert second.message.offset == 1
    assert lanes.next(second) is None
    assert lanes.wait_until_empty(0)


def test_calls_that_wait_run_beside_each_other() -> None:
    lanes, together, seen = Lanes(CALLS), threading.Barrier(CALLS), list[int]()

    def handle(one: Handed) -> None:
        together.wait(_SECONDS)  # it fails unless so many calls run at once
        seen.append(one.message.offset)

    with ExitStack() as stack:
        workers = Workers(handle, lanes, CALLS, stack)
        for offset in range(4 * CALLS):
            workers.add(handed(str(offset), offset))
        workers.wake()
    assert sorted(seen) == list(range(4 * CALLS))
    assert lanes.wait_until_empty(0)


def test_the_end_waits_for_messages_that_no_thread_was_woken_for() -> None:
    lanes, seen = Lanes(CALLS), list[int]()
    with ExitStack() as stack:
        workers = Workers(lambda one: seen.append(one.message.offset), lanes, CALLS, stack)
        workers.add(handed("a", 0))
        assert seen == []
    assert seen == [0]


def test_many_messages_wake_a_thread_before_the_dispatcher_waits() -> None:
    lanes, begun = Lanes(CALLS), threading.Event()
    with ExitStack() as stack:
        workers = Workers(lambda _: begun.set(), lanes, CALLS, stack)
        for offset in range(3 * CALLS):
            workers.add(handed(str(offset), offset))
        assert begun.wait(_SECONDS)


def test_tasks_that_wait_run_beside_each_other_and_quick_ones_need_few() -> None:
    names = set[str]()

    async def run(*, waits: bool) -> int:
        lanes, together, seen = Lanes(CALLS), asyncio.Barrier(CALLS), list[int]()
        names.clear()

        async def handle(one: Handed) -> None:
            task = asyncio.current_task()
            assert task is not None
            names.add(task.get_name())
            if waits:
                await asyncio.wait_for(together.wait(), _SECONDS)
            seen.append(one.message.offset)

        tasks = Tasks(handle, lanes, CALLS)
        for offset in range(4 * CALLS):
            tasks.add(handed(str(offset), offset))
        tasks.wake()
        await wait_for_all([tasks])
        assert sorted(seen) == list(range(4 * CALLS))
        return len(names)

    assert asyncio.run(run(waits=True)) == CALLS
    assert asyncio.run(run(waits=False)) == 1
