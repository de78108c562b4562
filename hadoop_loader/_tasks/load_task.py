"""One task of a load: fetch, decode into the latest schema, write files, count.

Rules:

- It knows nothing of Spark: it takes a LoadTask and a fetcher, and returns a TaskManifest.
- Everything it writes lies in a staging folder of its own attempt, so a retried or abandoned
  attempt leaves nothing that counts.
- Every offset that holds a message becomes a row or a quarantined message.
- It writes one file per topic, day, and flush. FLUSH_ROWS and FLUSH_QUARANTINED bound the memory,
  whatever the range.
- Topics with few messages are fetched together: at most MAX_TOPICS_PER_FETCH topics and
  CHUNK_MESSAGES offsets, so that a broker is asked once for all of them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hadoop_loader._decode.decoder import ColumnDecoder
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE, QuarantinedMessage, quarantine_table
from hadoop_loader._decode.recursive_types import FlatDatums
from hadoop_loader._decode.row_order import RowOrder
from hadoop_loader._decode.topic_batch import Micros, TopicBatch
from hadoop_loader._fetch.damage import DamagedRange, DamageReport, cut_ranges
from hadoop_loader._fetch.kafka_log import Fetcher
from hadoop_loader._fetch.messages import NO_SCHEMA, FetchedMessage, MessageColumns
from hadoop_loader._fetch.ranges import FetchRange
from hadoop_loader._fetch.row_numbers import Numbers, sum_windows
from hadoop_loader._storage.failpoints import failpoint
from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._storage.staging import StagedFile, Stager
from hadoop_loader._tables.columns import table_columns
from hadoop_loader._tables.field_ids import NO_FIELD_IDS, FieldIds, stored_columns
from hadoop_loader._tasks.progress import ProgressFile
from headworks._audit_counting import WINDOW_MS, window_of
from headworks._native import COMPILED
from headworks._wire import FramingError, unframe
from headworks.schema import Schema, governance_of, parse
from headworks.schema._model import Record

FLUSH_ROWS = 200_000
FLUSH_QUARANTINED = 20_000
CHUNK_MESSAGES = 20_000
MAX_TOPICS_PER_FETCH = 32


class WriterSchema(NamedTuple):
    """A registered version that messages may be written with; a load may know 40,000."""

    schema_id: int
    version: int
    text: str  # the schema, or its flat form (see `recursive_types`)
    recursive: str = ""  # the schema, if `text` is its flat form


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """How to read a topic: its table, its latest schema, and every version of its subject."""

    topic: str
    table: str
    subject: str
    latest: WriterSchema
    writers: tuple[WriterSchema, ...]
    hourly: bool = False
    field_ids: FieldIds = NO_FIELD_IDS  # of the latest schema
    life: int = 1  # of the topic: 2 once it was deleted and made again
    sensitive: tuple[tuple[str, ...], ...] = ()  # see `TableState.sensitive`


@dataclass(frozen=True, slots=True)
class LoadTask:
    """The ranges of one task, how to read their topics, and where to stage (an absolute folder).

    `skip_damaged`: skip damaged batches, or end before the first one of a partition; None: a
    damaged batch fails the task.
    """

    load: int
    ranges: tuple[FetchRange, ...]
    topics: Mapping[str, TopicPlan]
    staging: AnyPath
    skip_damaged: bool | None = None


@dataclass(slots=True)
class LoadedCounts:
    """Messages of one audit window (of record time): loaded, quarantined, and their bytes."""

    loaded: int = 0
    quarantined: int = 0
    bytes: int = 0


@dataclass(slots=True)
class TopicManifest:
    """The counts of one topic in a task."""

    topic: str
    ranges: tuple[FetchRange, ...]
    rows: int = 0
    quarantined: int = 0
    bytes: int = 0
    versions: dict[int, int] = field(default_factory=dict)  # rows by schema version
    windows: dict[int, LoadedCounts] = field(default_factory=dict)  # by start of the window, in ms
    first_event: int | None = None  # earliest event time, in ms
    last_event: int | None = None  # latest event time, in ms
    first_bad: str = ""  # the first quarantined message, for reports
    damaged: tuple[DamagedRange, ...] = ()  # skipped, or empty and at the end of a range
    leaderless: tuple[int, ...] = ()  # partitions that were not read to their ends


@dataclass(frozen=True, slots=True)
class TaskManifest:
    """The result of a task: staged files, counts by topic, and seconds by phase."""

    files: tuple[StagedFile, ...]
    topics: tuple[TopicManifest, ...]
    seconds: Mapping[str, float]


class PhaseTimer:
    """Sums up the seconds of each phase of a task."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("fetch", "decode", "write"), 0.0)  # by phase
        self._last = time.perf_counter()  # when the last phase ended

    def end_phase(self, name: str) -> None:
        """Count the time since the last phase ended as `name`."""
        now = time.perf_counter()
        self.seconds[name] += now - self._last
        self._last = now


def run_load_task(task: LoadTask, fetcher: Fetcher, *, compiled: bool = COMPILED) -> TaskManifest:
    """Load the ranges of one task."""
    attempt = task.staging / uuid.uuid4().hex
    stager, meter = Stager(attempt, task.load), ProgressFile(attempt)
    timer = PhaseTimer()
    topics = []
    for group_ranges in _fetch_groups(task.ranges):
        loaders = {
            topic: TopicLoader(
                task.topics[topic], task.load, stager, timer, ranges, compiled=compiled
            )
            for topic, ranges in group_ranges.items()
        }
        timer.end_phase("decode")
        wanted = [r for ranges in group_ranges.values() for r in ranges]
        damage = None if task.skip_damaged is None else DamageReport(task.skip_damaged)
        for topic, found in fetcher.fetch(wanted, damage):
            timer.end_phase("fetch")
            messages = found if isinstance(found, MessageColumns) else MessageColumns.of(found)
            meter.add(len(messages))
            failpoint("reading")
            for i in range(0, len(messages), CHUNK_MESSAGES):
                loaders[topic].add(messages[i : i + CHUNK_MESSAGES])
            timer.end_phase("decode")
        timer.end_phase("fetch")
        for loader in loaders.values():
            loader.flush()
            topics.append(_with_damage(loader.found, damage))
    files = stager.close()
    timer.end_phase("write")
    return TaskManifest(files, tuple(topics), timer.seconds)


def _with_damage(manifest: TopicManifest, damage: DamageReport | None) -> TopicManifest:
    """Return a manifest with its damaged ranges; its ranges end where the fetch ended."""
    if damage is None:
        return manifest
    away = sorted(partition for topic, partition in damage.leaderless if topic == manifest.topic)
    manifest = replace(manifest, leaderless=tuple(away))
    damaged = [one for one in damage.found if one.topic == manifest.topic]
    if not damaged:
        return manifest
    ranges = manifest.ranges if damage.skip else cut_ranges(manifest.ranges, damaged)
    return replace(manifest, ranges=tuple(ranges), damaged=tuple(sorted(damaged)))


def _fetch_groups(ranges: Sequence[FetchRange]) -> Iterator[dict[str, tuple[FetchRange, ...]]]:
    """Yield the topics of a task, with their ranges, in groups to be fetched together."""
    group: dict[str, tuple[FetchRange, ...]] = {}
    size = 0
    for topic, found in groupby(sorted(ranges), key=lambda r: r.topic):
        own = tuple(found)
        offsets = sum(r.size for r in own)
        if group and (len(group) == MAX_TOPICS_PER_FETCH or size + offsets > CHUNK_MESSAGES):
            yield group
            group, size = {}, 0
        group[topic] = own
        size += offsets
    if group:
        yield group


class RowWriter(Protocol):
    """Takes rows, table by table."""

    def write(
        self, topic: str, table: str, rows: pa.Table, days: Sequence[tuple[str, int, int]]
    ) -> None:
        """Write rows; `days` are (partition, first row, number of rows)."""
        ...


class TopicLoader:
    """Turns the messages of one topic into files, or whatever a RowWriter makes of the rows."""

    def __init__(
        self,
        plan: TopicPlan,
        load_number: int,
        stager: RowWriter,
        timer: PhaseTimer | None = None,
        ranges: tuple[FetchRange, ...] = (),
        *,
        compiled: bool = COMPILED,
    ) -> None:
        self.found = TopicManifest(plan.topic, ranges)  # counts so far
        self._quarantined: list[QuarantinedMessage] = []  # messages that are not written yet
        self._plan = plan
        self._load = load_number  # number of the load
        self._stager = stager
        self._compiled = compiled  # whether the compiled decoder decodes
        self._timer = timer or PhaseTimer()
        self._reader = parse(plan.latest.text, strict=False)  # the latest schema
        # Versions of the subject, by schema id.
        self._writers = {writer.schema_id: writer for writer in plan.writers}
        self._decoders: dict[int, ColumnDecoder] = {}  # by schema id
        self._flat: dict[int, FlatDatums] = {}  # by id of a recursive schema
        # The table's data columns.
        self._columns = stored_columns(table_columns(self._reader), plan.field_ids)
        # Rows that are not written yet.
        self._batch = TopicBatch(
            self._columns,
            path := event_time_path(self._reader),
            load_number,
            hourly=plan.hourly,
            field_ids=plan.field_ids.paths,
            life=plan.life,
        )
        self._order = RowOrder(self._batch, self._reader, path, compiled=compiled)

    def add(self, messages: MessageColumns) -> None:
        """Decode messages; set aside those that do not decode."""
        ids = messages.schema_ids()
        found = _distinct(ids)
        for schema_id in found:
            group = messages if len(found) == 1 else messages.with_schema(schema_id, ids)
            if schema_id in self._writers:
                self._decode(schema_id, group)
            else:
                self._refuse(schema_id, group)
        if self._batch.rows >= FLUSH_ROWS or len(self._quarantined) >= FLUSH_QUARANTINED:
            self.flush()

    def flush(self) -> None:
        """Write the decoded rows and the quarantined messages, one file per day."""
        self._timer.end_phase("decode")
        if self._batch.rows:
            self._stager.write(self._plan.topic, self._plan.table, *self._batch.take())
        if self._quarantined:
            self._stager.write(
                self._plan.topic,
                QUARANTINE_TABLE,
                *quarantine_table(self._quarantined, self._load, self._plan.life),
            )
            self._quarantined = []
        self._timer.end_phase("write")

    def _refuse(self, schema_id: int, messages: MessageColumns) -> None:
        """Set aside messages that no version of the subject has written."""
        for m in messages:
            if m.value is None:
                self._quarantine(m, None, "the message has no value (a tombstone)")
            elif schema_id != NO_SCHEMA:
                reason = f"schema id {schema_id} is no version of {self._plan.subject}"
                self._quarantine(m, schema_id, reason)
            else:
                self._quarantine(m, None, _framing_error(m.value))

    def _decode(self, schema_id: int, messages: MessageColumns) -> None:
        writer = self._writers[schema_id]
        if schema_id not in self._decoders:
            self._add_decoder(writer)
        messages, read = self._flattened(schema_id, messages)
        order = self._order.of(schema_id, partial(self._parsed, writer.text), read)
        if order is not None:
            flat = read is not messages
            messages = messages.where(order)
            read = read.where(order) if flat else messages
        arrays, errors = self._decoders[schema_id].decode_spans(read.data, read.starts, read.ends)
        if errors:
            if order is not None:  # they are quarantined in the order of the log
                errors.sort(key=lambda error: order[error[0]].as_py())
            for at, reason in errors:
                self._quarantine(messages[at], schema_id, reason)
            messages = messages.without(at for at, _ in errors)
        if not len(messages):
            return
        accepted = self._batch.add(arrays, messages, writer.version)
        for at in accepted.bad:
            self._quarantine(
                messages[at], schema_id, "the event time is not in the years 1 to 9999"
            )
        self._count(accepted.messages, writer.version, accepted.events)

    def _add_decoder(self, writer: WriterSchema) -> None:
        schema = self._parsed(writer.text)
        self._decoders[writer.schema_id] = ColumnDecoder(
            schema, self._reader, columns=self._columns, compiled=self._compiled
        )
        if writer.recursive:
            self._flat[writer.schema_id] = FlatDatums(writer.recursive)

    def _flattened(
        self, schema_id: int, messages: MessageColumns
    ) -> tuple[MessageColumns, MessageColumns]:
        """Return the messages, and the same with flat datums; bad ones are set aside."""
        if schema_id not in self._flat:
            return messages, messages
        good, flat, errors = self._flat[schema_id].flatten_all(messages)
        for at, reason in errors:
            self._quarantine(messages[at], schema_id, reason)
        return good, flat

    def _parsed(self, text: str) -> Schema:
        """Return a writer's schema, which is nearly always the reader's."""
        same = text == self._plan.latest.text
        return self._reader if same else parse(text, strict=False)

    def _count(self, messages: MessageColumns, version: int, events: Micros) -> None:
        if not len(messages):
            return
        found = self.found
        spans = messages.timestamps, messages.starts, messages.ends
        for window, rows, size in sum_windows(*spans, WINDOW_MS):
            counts = found.windows.setdefault(window * WINDOW_MS, LoadedCounts())
            counts.loaded += rows
            counts.bytes += size
            found.bytes += size
        found.rows += len(messages)
        found.versions[version] = found.versions.get(version, 0) + len(messages)
        ends = pc.min_max(events)
        first, last = ends["min"].as_py() // 1000, ends["max"].as_py() // 1000
        found.first_event = first if found.first_event is None else min(first, found.first_event)
        found.last_event = last if found.last_event is None else max(last, found.last_event)

    def _quarantine(self, m: FetchedMessage, schema_id: int | None, reason: str) -> None:
        size = len(m.value or b"")
        self.found.first_bad = (
            self.found.first_bad or f"partition {m.partition} offset {m.offset}: {reason}"
        )
        self._quarantined.append(QuarantinedMessage(self._plan.topic, m, schema_id, reason))
        counts = self.found.windows.setdefault(window_of(m.timestamp), LoadedCounts())
        counts.quarantined += 1
        counts.bytes += size
        self.found.quarantined += 1
        self.found.bytes += size


def _distinct(ids: Numbers) -> list[int]:
    """Return the distinct ids; there is nearly always one."""
    ends = pc.min_max(ids)
    if ends["min"] == ends["max"]:
        return [ends["min"].as_py()]
    return sorted(pc.unique(ids).to_pylist())


def _framing_error(value: bytes) -> str:
    """Return why a value has no schema id."""
    try:
        unframe(value)
    except FramingError as error:
        return error.message
    raise AssertionError("the value has a schema id")


def event_time_path(reader: Schema) -> tuple[str, ...] | None:
    """Return the path of the event time; None: the record's timestamp is the event time."""
    return governance_of(reader).event_time if isinstance(reader, Record) else None
