"""Asking the store for a topic that this broker does not know: seldom, and for possible names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headworks._broker.coordination import ClusterMember, Topic
from headworks._broker.coordination.interface import new_topic_id
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


def test_unknown_topic_names_share_the_limit_of_lookups(tmp_path: Path) -> None:
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


def test_concurrent_lookups_find_a_topic_that_another_broker_created(tmp_path: Path) -> None:
    async def main() -> None:
        finding, store = await finder(tmp_path, [0.0])
        store.made.add("new")
        found = await asyncio.gather(*(finding.find("new") for _ in range(5)))
        assert [topic is not None and topic.count for topic in found] == [1] * 5
        assert store.asked == ["new"]
        assert await finding.find("new") is found[0]
        assert store.asked == ["new"]

    asyncio.run(main())


def test_a_topic_with_another_id_is_another_topic_even_on_the_same_brokers(tmp_path: Path) -> None:
    async def main() -> None:
        finding, store = await finder(tmp_path, [0.0])
        store.made.add("again")
        before = await finding.find("again")
        assert before is not None
        store.made.clear()
        new = new_topic_id()
        store._db.execute("UPDATE topics SET topic_id = ?", (new.bytes,))
        await finding.refresh("again")
        after = await finding.find("again")
        assert after is not None
        assert after is not before
        assert after.topic_id == new
        assert before.partitions[0].failure is not None, "the old topic takes no more batches"

    asyncio.run(main())
