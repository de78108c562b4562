"""Topics as Spark DataFrames: read as typed rows, written as governed events.

    hadoop_loader.register(spark)
    spark.read.format("headworks").option("topic", "clicks").load()
    df.write.format("headworks").mode("append").option("topic", "clicks").save()

Rules:

- All rows have the schema that is the latest when the DataFrame is created. Messages are projected
  to it by the code that loads use.
- A message that cannot be decoded fails the query, with its partition and offset, unless `bad` is
  `skip`.
- Columns are checked against the registry before the first row is sent. A row that does not fit
  fails its task, with its number and the reason. If Spark retries a task, its rows are sent again.
- Options and settings are resolved in the driver, and sent to the workers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from hadoop_loader._commit.registry_subjects import RegistrySubjects, require_versions
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.messages import MessageColumns
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._fetch.ranges import FetchRange, no_leader_error
from hadoop_loader._spark.column_types import struct_of
from hadoop_loader._spark.rows import check_columns, datum_of
from hadoop_loader._tables.columns import (
    LOCAL_TYPE,
    METADATA_COLUMNS,
    StructColumn,
    table_columns,
)
from hadoop_loader._tables.hive_catalog import column_list
from hadoop_loader._tasks.load_task import TopicLoader, TopicPlan
from headworks._kafka.bootstrap import resolve_bootstrap
from headworks._kafka.client_properties import client_properties
from headworks._settings import resolve
from headworks._wire import prefix
from headworks.errors import CorruptError, UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from headworks.schema import Record, parse, subject_of

_FLUSH_SECONDS = 60  # seconds
_OPTIONS = ("topic", "bootstrap", "registry", "start", "bad", "key")
# Columns of a table that only a load can fill.
_OF_LOADS = ("_load", "_topic_life", "_written")


class HeadworksSource(DataSource):
    """Options: topic, bootstrap, registry; start and bad for reading, key for writing."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        unknown = sorted(set(options) - set(_OPTIONS) - {"path"})
        if unknown or "topic" not in options:
            raise UsageError(
                f"format headworks has no option {', '.join(unknown)}"
                if unknown
                else "format headworks needs to know the topic",
                fix=f"options are {', '.join(_OPTIONS)}",
            )
        if options.get("bad", "fail") not in ("fail", "skip"):
            raise UsageError(f"option bad is fail or skip, not {options['bad']!r}")
        self._plan = _latest_plan(options["topic"], resolve("registry", options.get("registry")))
        self._client = client_properties(resolve_bootstrap(options.get("bootstrap")))

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "headworks"

    def schema(self) -> str:
        """Return the columns of the latest schema and of the metadata, as DDL."""
        return column_list(_columns(self._plan), LOCAL_TYPE)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """Return a reader of the topic as it is now."""
        return _BatchReader(self._client, self._plan, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return a reader of the topic from now on, in micro-batches."""
        return _StreamReader(self._client, self._plan, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer for rows with these columns, which are checked here."""
        if overwrite:
            raise UsageError("a topic cannot be overwritten", fix='write with mode("append")')
        key = self.options.get("key")
        columns = struct_of(schema)
        names = [f.name for f in columns.fields]
        if key is not None and key not in names:
            raise UsageError(f"there is no column {key} to take keys from")
        reader = parse(self._plan.latest.text, strict=False)
        if not isinstance(reader, Record):
            raise UsageError(f"the schema of topic {self._plan.topic} is no record")
        drop = key if key is not None and all(f.name != key for f in reader.fields) else None
        check_columns(StructColumn(tuple(f for f in columns.fields if f.name != drop)), reader)
        return _EventWriter(self._client, self._plan, key)


@dataclass
class _RangePartition(InputPartition):
    """An offset range of one partition."""

    range: FetchRange


class _TopicReader:
    """Reads offset ranges as Arrow: a fetcher, and the loader's decoder with a sink in memory."""

    def __init__(self, client: Mapping[str, Any], plan: TopicPlan, options: Mapping[str, str]):
        self._client = client
        self._plan = plan
        self._skip_bad = options.get("bad", "fail") == "skip"
        self._start = RewindPosition.parse(options.get("start", "earliest"))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Iterate over the rows of one range as record batches."""
        if not isinstance(partition, _RangePartition):
            return  # Spark reads one partition even of an empty topic
        sink = _RowSink(None if self._skip_bad else self._plan.topic)
        loader = TopicLoader(self._plan, 0, sink)
        for _, found in BrokerFetcher(self._client).fetch([partition.range]):
            messages = found if isinstance(found, MessageColumns) else MessageColumns.of(found)
            if len(messages):
                loader.add(messages)
            loader.flush()
            yield from sink.take()


class _BatchReader(_TopicReader, DataSourceReader):
    """Reads a topic as it is when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return a range for each partition of the topic that has messages."""
        log = KafkaLog(self._client)
        ends = _require_watermarks(log, self._plan.topic)
        topic = self._plan.topic
        starts = self._start.starts(ends, lambda ms: log.offsets_at(topic, list(ends), ms))
        return [
            _RangePartition(FetchRange(topic, p, max(start, ends[p].low), ends[p].high))
            for p, start in sorted(starts.items())
            if max(start, ends[p].low) < ends[p].high
        ]


class _StreamReader(_TopicReader, DataSourceStreamReader):
    """Reads a topic in Spark's micro-batches; Spark stores the offsets."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the offsets at which a new stream starts."""
        log, topic = KafkaLog(self._client), self._plan.topic
        ends = _require_watermarks(log, topic)
        starts = self._start.starts(ends, lambda ms: log.offsets_at(topic, list(ends), ms))
        return {str(p): max(starts.get(p, ends[p].high), ends[p].low) for p in ends}

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: dict[str, int],  # noqa: ARG002 - Spark's signature
        limit: ReadLimit,  # noqa: ARG002
    ) -> dict[str, int]:
        """Return the end offsets: a batch takes everything that is new."""
        ends = _require_watermarks(KafkaLog(self._client), self._plan.topic)
        return {str(p): mark.high for p, mark in ends.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the ranges between two offsets; a partition added meanwhile starts at 0."""
        return [
            _RangePartition(FetchRange(self._plan.topic, int(p), start.get(p, 0), high))
            for p, high in sorted(end.items())
            if start.get(p, 0) < high
        ]

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: retention alone removes messages."""


class _RowSink:
    """Collects decoded rows; if `strict` is a topic, the first bad message raises."""

    def __init__(self, strict: str | None) -> None:
        self._strict = strict
        self._batches: list[Any] = []

    def write(self, topic: str, table: str, rows: Any, days: object) -> None:  # noqa: ARG002
        """Collect rows; CorruptError for a bad message if `strict`."""
        if table != QUARANTINE_TABLE:
            names = [name for name in rows.schema.names if name not in _OF_LOADS]
            self._batches.extend(rows.select(names).combine_chunks().to_batches())
        elif self._strict is not None:
            bad = rows.slice(0, 1).to_pylist()[0]
            raise CorruptError(
                f"{self._strict}[{bad['_partition']}] offset {bad['_offset']} is no row: "
                f"{bad['reason']}",
                fix='read with .option("bad", "skip") to leave such messages out',
            )

    def take(self) -> list[Any]:
        """Return the rows collected since the last call."""
        batches, self._batches = self._batches, []
        return batches


@dataclass
class _SentRows(WriterCommitMessage):
    """The number of rows that a task sent."""

    rows: int


class _EventWriter(DataSourceArrowWriter):
    """Sends rows as events with the schema that was the latest when the write started."""

    def __init__(self, client: Mapping[str, Any], plan: TopicPlan, key: str | None) -> None:
        self._client = client
        self._plan = plan
        self._key = key

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task, and return when the broker has acknowledged them."""
        from confluent_kafka import KafkaException, Producer

        failed: list[object] = []
        settings = {"enable.idempotence": True, "compression.type": "zstd", "linger.ms": 5}
        producer = Producer({**self._client, **settings})
        encode, sent = self._encoder(), 0
        try:
            for batch in iterator:
                for row in batch.to_pylist():
                    key, value = self._key_of(row), encode(row, sent)
                    _produce(producer, self._plan.topic, key, value, failed)
                    sent += 1
            left = producer.flush(_FLUSH_SECONDS)
        except KafkaException as error:
            failed.append(error)
            left = 0
        except BaseException:
            producer.flush(_FLUSH_SECONDS)  # the error says that the rows before it were sent
            raise
        if failed or left:
            raise UnreachableError(
                f"broker {self._client['bootstrap.servers']} did not take the rows of a task: "
                f"{failed[0] if failed else f'{left} left after {_FLUSH_SECONDS} s'}",
                fix="acknowledged messages stay in the topic, and another attempt duplicates them",
            )
        return _SentRows(sent)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the rows of a finished task are in the topic."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: rows that were sent stay in the topic."""

    def _encoder(self) -> Any:
        import json

        from fastavro import parse_schema, schemaless_writer

        latest = self._plan.latest
        head, datum = prefix(latest.schema_id), datum_of(parse(latest.text, strict=False))
        schema = parse_schema(json.loads(latest.text))

        def encode(row: Mapping[str, Any], number: int) -> bytes:
            out = io.BytesIO()
            out.write(head)
            try:
                schemaless_writer(out, schema, datum(row), strict_allow_default=False)
            except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as error:
                raise UsageError(
                    f"row {number} of a task is no {self._plan.subject} version "
                    f"{latest.version}: {error}",
                    fix="mend it (a null where the schema has none?); the rows before it were sent",
                ) from None
            return out.getvalue()

        return encode

    def _key_of(self, row: dict[str, Any]) -> bytes | None:
        value = row.get(self._key) if self._key is not None else None
        return value if value is None or isinstance(value, bytes) else str(value).encode()


def _produce(
    producer: Any, topic: str, key: bytes | None, value: bytes, failed: list[object]
) -> None:
    from confluent_kafka import KafkaException

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    while True:
        if failed:  # each further full queue would take minutes to fail, too
            raise KafkaException(failed[0])
        try:
            producer.produce(topic, value, key, on_delivery=delivered)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.1)


def _latest_plan(topic: str, registry: str) -> TopicPlan:
    versions = require_versions(topic, RegistrySubjects(RegistryClient(registry)).versions([topic]))
    if not versions:
        raise UsageError(
            f"topic {topic} has no schema in the registry at {registry}",
            fix=f"register one as {subject_of(topic)}",
        )
    return TopicPlan(topic, topic, subject_of(topic), versions[-1], versions)


def _columns(plan: TopicPlan) -> tuple[Any, ...]:
    """Return the columns of a table of the topic, except those that a load gives."""
    metadata = (f for f in METADATA_COLUMNS if f.name not in _OF_LOADS)
    return (*table_columns(parse(plan.latest.text, strict=False)), *metadata)


def _require_watermarks(log: KafkaLog, topic: str) -> Mapping[int, Any]:
    partitions = log.partitions().get(topic)
    if partitions is None:
        raise UsageError(f"there is no topic {topic} on the broker")
    marks = log.watermarks({topic: partitions})[topic]
    if away := [p for p in partitions if p not in marks]:
        raise no_leader_error(topic, away)  # a query must not omit rows silently
    return marks
