"""Asking the store for a topic that this broker does not know: seldom, and for possible names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headworks._broker.coordination import ClusterMember, Topic
from headworks._broker.coordination.local import LocalCoordination
from headworks._broker.topics import Flusher, HostedTopics, TopicChanges, TopicLookup

pytestmark = pytest.mark.unit


class Elsewhere(LocalCoordination):
    """A store that another process writes to: what it has made is seen when it is looked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 1)
        self.asked: list[str] = []
        self.made: set[str] = set()

    async def read_topic(self, name: str) -> Topic | None:
        self.asked.append(name)
        await asyncio.sleep(0)
        if name in self.made:
            await self.create_topic(Topic(name, (1,)))
        return await super().read_topic(name)


async def finder(folder: Path, clock: list[float]) -> tuple[TopicLookup, Elsewhere]:
    store = Elsewhere(folder / "store.sqlite")
    await store.join(ClusterMember(1, "127.0.0.1", 9))
    flusher = Flusher(asyncio.get_running_loop(), lambda _: None)
    hosted = HostedTopics(folder / "logs", flusher, {})
    changes = TopicChanges(hosted, store)
    await changes.load()
    return TopicLookup(hosted, changes, store, lambda: clock[0]), store


def test_a_name_that_nobody_knows_is_asked_for_once_a_second(tmp_path: Path) -> None:
    async def main() -> None:
        clock = [0.0]
        finding, store = await finder(tmp_path, clock)
        for moment in (0.0, 0.5, 0.9, 1.0, 1.5):
            clock[0] = moment
            assert await finding.find("nowhere") is None
        assert store.asked == ["nowhere", "nowhere"]

    asyncio.run(main())


def test_many_names_that_nobody_knows_share_what_may_be_asked(tmp_path: Path) -> None:
    async def main() -> None:
        clock = [0.0]
        finding, store = await finder(tmp_path, clock)
        for number in range(500):
            clock[0] = number / 100  # five seconds
            await finding.find(f"nowhere-{number}")
        assert 20 <= len(store.asked) <= 5 * 20 + 20
        store.asked.clear()
        for impossible in ("", "..", "a/b", "x" * 250):
            clock[0] += 10
            await finding.find(impossible)
        assert store.asked == []

    asyncio.run(main())


def test_what_another_has_made_is_found_by_all_who_ask_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        finding, store = await finder(tmp_path, [0.0])
        store.made.add("new")
        found = await asyncio.gather(*(finding.find("new") for _ in range(5)))
        assert [topic is not None and topic.count for topic in found] == [1] * 5
        assert store.asked == ["new"]
        assert await finding.find("new") is found[0]
        assert store.asked == ["new"]

    asyncio.run(main())
