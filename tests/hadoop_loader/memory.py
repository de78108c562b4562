"""A log, a registry's versions and a metastore in memory: everything around a load but Spark."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow.parquet as pq
from fastavro import parse_schema, schemaless_writer

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._fetch.damage import DamagedRange, DamageReport
from hadoop_loader._fetch.kafka_log import FetchedMessage
from hadoop_loader._fetch.log_identity import LogIdentity
from hadoop_loader._fetch.ranges import FetchRange, Watermarks
from hadoop_loader._storage.filesystem import AnyPath, parquet_source, sorted_glob
from hadoop_loader._tables.columns import StructField
from hadoop_loader._tables.sensitive import MASKED_BY
from hadoop_loader._tasks.load_task import LoadTask, TaskManifest, WriterSchema, run_load_task
from hadoop_loader._tasks.rewrite_task import RewriteResult, RewriteTask, run_rewrite_task
from headworks._wire import prefix
from headworks.errors import CorruptError, UsageError

Json = Any


def encoded(schema: Json, value: Any, schema_id: int = 1) -> bytes:
    """A framed message value, by fastavro."""
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(json.loads(json.dumps(schema))), value)
    return prefix(schema_id) + out.getvalue()


@dataclass
class MemoryLog:
    """Topics in memory: the broker of a load, and the fetcher of its tasks."""

    topics: dict[str, dict[int, list[FetchedMessage]]] = field(default_factory=dict)
    low: dict[tuple[str, int], int] = field(default_factory=dict)
    leaderless: set[tuple[str, int]] = field(default_factory=set)
    damaged: list[DamagedRange] = field(default_factory=list)  # batches that do not decode
    cluster: str = "one"
    ids: dict[str, str] = field(default_factory=dict)  # of topics that were made again

    def append(
        self, topic: str, value: bytes | None, timestamp: int = 0, partition: int = 0
    ) -> None:
        messages = self.topics.setdefault(topic, {}).setdefault(partition, [])
        messages.append(FetchedMessage(partition, len(messages), timestamp, None, value))

    def partitions(self) -> Mapping[str, Sequence[int]]:
        return {t: sorted(ps) for t, ps in self.topics.items() if not t.startswith("__")}

    def watermarks(
        self, topics: Mapping[str, Sequence[int]]
    ) -> Mapping[str, Mapping[int, Watermarks]]:
        return {
            t: {
                p: Watermarks(self.low.get((t, p), 0), len(self.topics[t][p]))
                for p in ps
                if (t, p) not in self.leaderless
            }
            for t, ps in topics.items()
        }

    def identify(self, topics: Collection[str]) -> LogIdentity:
        return LogIdentity(self.cluster, {t: self.ids.get(t, f"id of {t}") for t in topics})

    def recreate(self, topic: str) -> None:
        """Delete a topic, and make it again."""
        self.topics[topic] = {}
        self.ids[topic] = f"another {self.ids.get(topic, topic)}"

    def offsets_at(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]:
        return {
            p: next((m.offset for m in self.topics[topic][p] if m.timestamp >= time_ms), 1 << 40)
            for p in partitions
        }

    def fetch(
        self, ranges: Sequence[FetchRange], damage: DamageReport | None = None
    ) -> Iterator[tuple[str, list[FetchedMessage]]]:
        for r in ranges:
            start, messages = r.start, self.topics[r.topic][r.partition]
            for one in sorted(self.damaged):
                if (one.topic, one.partition) == (r.topic, r.partition) and (
                    max(start, one.start) < min(one.end, r.end)
                ):
                    at = max(start, one.start)
                    if damage is None:
                        raise CorruptError(f"{r.topic}[{r.partition}] is damaged at {at}")
                    yield r.topic, messages[start:at]
                    start = min(one.end, r.end) if damage.skip else r.end
                    end = start if damage.skip else at
                    damage.found.append(DamagedRange(r.topic, r.partition, at, end, "its CRC"))
            yield r.topic, messages[start : r.end]


class MemoryJobs:
    """A load's jobs in this process."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def load(self, tasks: Sequence[LoadTask]) -> list[TaskManifest]:
        return [run_load_task(task, self._log) for task in tasks]

    def rewrite(self, rewrites: Sequence[RewriteTask]) -> list[RewriteResult]:
        return [run_rewrite_task(job) for job in rewrites]


class MemoryCatalog:
    """A metastore that remembers what it was told."""

    def __init__(self) -> None:
        self.columns: dict[str, tuple[StructField, ...]] = {}
        self.locations: dict[str, AnyPath] = {}
        self.views: dict[str, str] = {}
        self.days: dict[str, dict[str, AnyPath]] = {}
        self.properties: dict[str, dict[str, str]] = {}
        self.masked: dict[str, tuple[str, str]] | None = None  # query, and what defined it
        self.max_masked_characters: int | None = None
        self.prefix = ""  # of views in SQL

    def tables(self) -> set[str]:
        return set(self.columns)

    def check(self) -> None:
        pass

    def put_table(
        self,
        name: str,
        columns: Sequence[StructField],
        location: AnyPath,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        self.columns[name] = tuple(columns)
        self.locations[name] = location
        self.days.setdefault(name, {})
        self.properties.setdefault(name, {}).update(properties)

    def put_view(
        self,
        name: str,
        columns: Sequence[StructField],
        query: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        self.views[name] = query

    def masked_view(self, name: str) -> str | None:
        return None if self.masked is None else self.masked.get(name, ("", ""))[1]

    def put_masked_view(
        self,
        name: str,
        columns: Sequence[StructField],
        query: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        assert self.masked is not None, "no masked view is wanted"
        self.masked[name] = query, properties[MASKED_BY]

    def check_masked_query(self, query: str) -> None:
        if self.max_masked_characters is not None and len(query) > self.max_masked_characters:
            raise UsageError("the masked view is too long")

    def drop_masked_view(self, name: str) -> None:
        (self.masked or {}).pop(name, None)

    def add_days(self, name: str, days: Iterable[str]) -> None:
        for day in days:
            self.days[name].setdefault(day, self.locations[name] / f"datepartition={day}")

    def relocate(self, name: str, folders: Mapping[str, AnyPath]) -> None:
        self.days[name].update(folders)

    def drop_table(self, name: str) -> None:
        self.columns.pop(name, None)
        self.days.pop(name, None)

    def drop_days(self, name: str, days: Iterable[str]) -> None:
        for day in days:
            self.days[name].pop(day, None)

    def drop_view(self, name: str) -> None:
        self.drop_masked_view(name)
        self.views.pop(name, None)

    def set_properties(self, name: str, properties: dict[str, str]) -> None:
        self.properties.setdefault(name, {}).update(properties)

    def source_of(self, name: str) -> str:
        return name

    def view_of(self, name: str) -> str:
        return self.prefix + name


@dataclass
class World:
    """What outlives a loader that is killed."""

    root: AnyPath
    log: MemoryLog = field(default_factory=MemoryLog)
    subjects: dict[str, list[WriterSchema]] = field(default_factory=dict)
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    published: list[Commit] = field(default_factory=list)

    def register(self, topic: str, schema: Json) -> int:
        """Register a schema for a topic; its id."""
        known = self.subjects.setdefault(topic, [])
        schema_id = 1 + sum(map(len, self.subjects.values()))
        known.append(WriterSchema(schema_id, len(known) + 1, json.dumps(schema)))
        return schema_id

    def context(self, **changes: Any) -> LoaderContext:
        """A loader's parts, as a new process would put them together."""
        self.root.mkdir(parents=True, exist_ok=True)
        given: dict[str, Any] = {
            "root": self.root,
            "log": CommitLog(self.root / "_headworks"),
            "broker": self.log,
            "versions": lambda topics: {t: tuple(self.subjects.get(t, ())) for t in topics},
            "jobs": MemoryJobs(self.log),
            "catalog": self.catalog,
            "publish": self.published.append,
            "tasks": 2,
            "on_step": lambda step: None,
            "now": lambda: 1.0,
        }
        policy = {f.name for f in fields(Policy)} & changes.keys()
        if policy:
            changes["policy"] = Policy(**{name: changes.pop(name) for name in policy})
        return LoaderContext(**{**given, **changes})

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows that a reader of the table's known days sees."""
        return [
            {**row, "datepartition": day}
            for day, folder in sorted(self.catalog.days.get(table, {}).items())
            for file in sorted_glob(folder, "[!._]*")
            for row in pq.ParquetFile(parquet_source(file)).read().to_pylist()
        ]
