"""Bring back what a stopped broker lost: topics from the folders of their partitions, or a log.

Rules:

- The caller holds the lock of the data folder, and the broker runs without ZooKeeper.
- An adopted topic keeps its id if committed offsets of a salvaged store name it. Groups then
  continue.
- An adopted topic retains everything: its configs were in the lost store, and a default retention
  could delete records.
- A recreated log begins at an offset above every committed one. No consumer then takes new messages
  for those that it has read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from headworks._broker.coordination import LocalCoordination, Topic
from headworks._broker.coordination.folder import partition_folders, refuse_cluster_folder
from headworks._broker.coordination.interface import new_topic_id
from headworks._broker.log.compaction_state import load
from headworks._broker.log.recovery import holds_log
from headworks._broker.log.repair import recreate
from headworks._broker.topics.begun import FILE as BEGUN_FILE
from headworks._broker.topics.begun import BegunPartitions
from headworks._server.checked_sqlite.salvage import SalvagedRows, salvage
from headworks.errors import CorruptError, UsageError

STORE_FILE = "coordination.sqlite"
_OFFSET_STEP = 1_000_000_000  # recreated logs begin at a multiple of it
_RETAIN_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class AdoptedTopic:
    """A topic that was made from folders."""

    name: str
    partitions: int
    missing: tuple[int, ...]  # partitions without a folder, which the broker will refuse


def adopt_topics(data: Path) -> list[AdoptedTopic]:
    """Make topics from the folders that belong to none. Raises CorruptError for a damaged store."""
    refuse_cluster_folder(data)
    found: dict[str, dict[int, Path]] = {}
    for folder in partition_folders(data / "logs"):
        name, _, index = folder.name.rpartition("-")
        found.setdefault(name, {})[int(index)] = folder
    return asyncio.run(_adopt(data, found))


async def _adopt(data: Path, found: dict[str, dict[int, Path]]) -> list[AdoptedTopic]:
    begun = BegunPartitions(data / BEGUN_FILE)
    adopted = []
    store = LocalCoordination(data / STORE_FILE, adopting=True)
    known = {topic.name for topic in await store.topics()}
    ids = store.committed.topic_ids()
    for name, folders in found.items():
        if name in known:
            continue
        count = max(folders) + 1
        compacted = any(map(_is_compacted, folders.values()))
        configs = _RETAIN_ALL | ({"cleanup.policy": "compact"} if compacted else {})
        begun.add(f"{name}-{index}" for index in range(count))
        topic_id = ids.get(name, new_topic_id())
        await store.create_topic(Topic(name, (1,) * count, configs, topic_id=topic_id))
        missing = tuple(index for index in range(count) if index not in folders)
        adopted.append(AdoptedTopic(name, count, missing))
    await store.close()
    return adopted


def salvage_store(data: Path) -> tuple[SalvagedRows, list[AdoptedTopic]]:
    """Rebuild the store from its intact rows, and adopt the topics that are lost in it."""
    refuse_cluster_folder(data)

    def make(path: Path) -> None:
        asyncio.run(LocalCoordination(path, adopting=True).close())

    rows = salvage(data / STORE_FILE, make, lambda _path, _rows: None)
    return rows, adopt_topics(data)


def recreate_partition(data: Path, partition: str, first_offset: int | None) -> int:
    """Make an empty log for a partition that has none, and return its first offset.

    Raises UsageError if the partition has a log, or if the first offset must be given: only the
    store of a broker without ZooKeeper knows the committed offsets.
    """
    folder = data / "logs" / partition
    if holds_log(folder):
        raise UsageError(
            f"{folder} holds a log",
            fix="move it away first. If it is damaged, run `headworks log salvage` instead",
        )
    topic, _, index = partition.rpartition("-")
    if partition not in BegunPartitions(data / BEGUN_FILE):
        raise UsageError(
            f"{partition} is no partition that this broker has begun",
            fix="give TOPIC-NUMBER, as the broker's log names it",
        )
    if first_offset is None:
        if not (data / STORE_FILE).exists():
            raise UsageError(
                "this broker does not know the committed offsets of its cluster",
                fix="give --first-offset N, above every offset that consumers and loads stored",
            )
        committed = asyncio.run(_largest_committed(data, topic, int(index)))
        first_offset = (committed // _OFFSET_STEP + 1) * _OFFSET_STEP
    recreate(folder, first_offset)
    return first_offset


async def _largest_committed(data: Path, topic: str, index: int) -> int:
    largest = 0
    store = LocalCoordination(data / STORE_FILE)
    for group in await store.groups():
        at = (await store.offsets(group)).get((topic, index))
        largest = max(largest, 0 if at is None else at.offset)
    await store.close()
    return largest


def _is_compacted(folder: Path) -> bool:
    try:
        return load(folder).dirty > 0
    except CorruptError:
        return False
