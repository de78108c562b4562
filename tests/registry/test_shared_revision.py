"""One reading of the store's revision for many requests, and none that is older than a request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from headworks._registry.shared_revision import MAX_WAITING, SharedRevision
from tests.waiting import PATIENCE

pytestmark = pytest.mark.unit


class Store:
    """A store whose readings wait until they may end; each one gives the next number."""

    def __init__(self) -> None:
        self.begun = 0
        self.failure: Exception | None = None
        self.may_end = threading.Semaphore(0)

    def revision(self) -> int:
        self.begun += 1
        found = self.begun
        assert self.may_end.acquire(timeout=PATIENCE)
        if self.failure is not None:
            raise self.failure
        return found


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.may_end.release(100)


async def begun(store: Store, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while store.begun < count:
            await asyncio.sleep(0.001)


def test_requests_share_a_reading_that_began_after_them(store: Store) -> None:
    async def test() -> None:
        shared = SharedRevision(store.revision)
        first = asyncio.create_task(shared.now())
        await begun(store, 1)
        later = [asyncio.create_task(shared.now()) for _ in range(5)]
        await asyncio.sleep(0)
        store.may_end.release()
        assert await first == 1
        await begun(store, 2)
        assert not any(one.done() for one in later)
        store.may_end.release()
        assert await asyncio.gather(*later) == [2] * 5
        store.may_end.release()
        assert await shared.now() == 3

    asyncio.run(test())


def test_a_failure_is_that_of_each_request_and_of_no_later_one(store: Store) -> None:
    async def test() -> None:
        shared = SharedRevision(store.revision)
        asked = [asyncio.create_task(shared.now()) for _ in range(3)]
        await begun(store, 1)
        asked[0].cancel()
        store.failure = OSError("away")
        store.may_end.release()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in found] == [asyncio.CancelledError, OSError, OSError]
        store.failure = None
        store.may_end.release()
        assert await shared.now() == 2

    asyncio.run(test())


def test_a_reading_that_hangs_gathers_few_requests(store: Store) -> None:
    async def test() -> None:
        shared = SharedRevision(store.revision)
        asked = [asyncio.create_task(shared.now()) for _ in range(MAX_WAITING)]
        await begun(store, 1)
        assert await shared.now() is None
        asked.pop().cancel()
        await asyncio.sleep(0)
        another = asyncio.create_task(shared.now())
        store.may_end.release(2)
        assert await asyncio.gather(*asked) == [1] * len(asked)
        assert await another == 2

    asyncio.run(test())


def test_others_are_served_between_the_requests_of_one_reading(store: Store) -> None:
    order: list[str] = []

    async def test() -> None:
        shared = SharedRevision(store.revision)

        async def ask() -> None:
            await shared.now()
            order.append("asked")
            asyncio.get_running_loop().call_soon(order.append, "other")

        tasks = [asyncio.create_task(ask()) for _ in range(3)]
        await begun(store, 1)
        store.may_end.release()
        await asyncio.gather(*tasks)

    asyncio.run(test())
    assert order[:4] == ["asked", "other", "asked", "other"]
