"""A bin as a task reads it: little topics together, large ones alone, nothing mixed up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hadoop_loader._fetch.damage import DamageReport
from hadoop_loader._fetch.kafka_log import FetchedMessage
from hadoop_loader._fetch.ranges import FetchRange
from hadoop_loader._tasks import load_task
from hadoop_loader._tasks.load_task import LoadTask, TopicPlan, WriterSchema, run_load_task
from tests.hadoop_loader.memory import MemoryLog, encoded
from tests.hadoop_loader.test_loading import V1

pytestmark = pytest.mark.unit


class Asked(MemoryLog):
    """Remembers what it was asked for together, and gives topics in turns."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[list[FetchRange]] = []

    def fetch(
        self, ranges: Sequence[FetchRange], damage: DamageReport | None = None
    ) -> Iterator[tuple[str, list[FetchedMessage]]]:
        self.groups.append(list(ranges))
        found = list(super().fetch(ranges, damage))
        for half in (0, 1):
            for topic, messages in found:
                yield topic, messages[half::2]


def test_topics_of_which_there_is_little_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_task, "MAX_TOPICS_PER_FETCH", 3)
    monkeypatch.setattr(load_task, "CHUNK_MESSAGES", 10)
    log = Asked()
    sizes = {"a": 2, "b": 3, "c": 4, "d": 1, "e": 30, "f": 9, "g": 2}
    plans = {}
    for number, (topic, size) in enumerate(sizes.items(), 1):
        writer = WriterSchema(number, 1, json.dumps(V1))
        plans[topic] = TopicPlan(topic, topic, topic, writer, (writer,))
        for n in range(size):
            value = encoded(V1, {"at": 0, "n": 100 * number + n}, number)
            log.append(topic, value, partition=n % 2)
    ranges = [
        FetchRange(topic, p, 0, len(messages))
        for topic, partitions in log.topics.items()
        for p, messages in partitions.items()
    ]
    manifest = run_load_task(LoadTask(1, tuple(reversed(ranges)), plans, tmp_path), log)
    assert [sorted({r.topic for r in group}) for group in log.groups] == [
        ["a", "b", "c"],
        ["d"],
        ["e"],
        ["f"],
        ["g"],
    ]
    assert sorted(r for group in log.groups for r in group) == sorted(ranges)
    assert {found.topic: found.rows for found in manifest.topics} == sizes
    assert sorted(r for found in manifest.topics for r in found.ranges) == sorted(ranges)
    assert [file.topic for file in manifest.files] == sorted(sizes)
    for number, file in enumerate(manifest.files, 1):
        rows = pq.ParquetFile(Path(file.path)).read().to_pylist()
        assert len(rows) == file.rows == sizes[file.topic]
        assert {row["n"] for row in rows} == {100 * number + n for n in range(file.rows)}
