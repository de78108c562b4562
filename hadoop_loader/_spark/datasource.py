"""Topics as Spark DataFrames: read as typed rows, written as governed events.

    hadoop_loader.register(spark)
    spark.read.format("headworks").option("topic", "clicks").load()
    df.write.format("headworks").mode("append").option("topic", "clicks").save()

Rules:

- The latest schema, as it is when the DataFrame is made, is the schema of all rows; a message is
  projected to it as a load does it, by the same code.
- A message that is no row ends the query with its partition and offset, unless `bad` is `skip`.
- Columns are checked against the registry before the first row leaves; a row that does not fit
  ends its task, with its number and why. A task that Spark runs again sends its rows again.
- Python options and settings are resolved where the DataFrame is made, and go along to the workers.
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

from hadoop_loader._commit.topic_plans import RegistrySubjects, require_versions
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.messages import Messages
from hadoop_loader._fetch.position import Position
from hadoop_loader._fetch.ranges import Range, unled
from hadoop_loader._spark.column_types import struct_of
from hadoop_loader._spark.rows import check_columns, datum_of
from hadoop_loader._tables.columns import METADATA, Struct, table_columns
from hadoop_loader._tables.hive_catalog import column_list
from hadoop_loader._tasks.load_task import TopicLoader, TopicPlan
from headworks._kafka.client_properties import client_properties
from headworks._settings import resolve
from headworks._wire import prefix
from headworks.errors import CorruptError, UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from headworks.schema import Record, parse, subject_of

__all__ = ["HeadworksSource"]

_FLUSH_SECONDS = 60  # seconds
_OPTIONS = ("topic", "bootstrap", "registry", "start", "bad", "key")


class HeadworksSource(DataSource):
    """Options: topic, bootstrap, registry; start and bad to read, key to write."""

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
        self._client = client_properties(resolve("bootstrap", options.get("bootstrap")))

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "headworks"

    def schema(self) -> str:
        """The columns of the latest schema, and where each row came from."""
        return column_list(_columns(self._plan))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """A reader of the topic as it is now."""
        return _BatchReader(self._client, self._plan, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """A reader of the topic from now on, batch by batch."""
        return _StreamReader(self._client, self._plan, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of rows, whose columns have been checked."""
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
        check_columns(Struct(tuple(f for f in columns.fields if f.name != drop)), reader)
        return _EventWriter(self._client, self._plan, key)


@dataclass
class _RangePartition(InputPartition):
    """A range of one partition."""

    range: Range


class _TopicReader:
    """Reads ranges into Arrow: a fetcher, and the loader's decoder with a sink in memory."""

    def __init__(self, client: Mapping[str, Any], plan: TopicPlan, options: Mapping[str, str]):
        self._client = client
        self._plan = plan
        self._skip_bad = options.get("bad", "fail") == "skip"

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one range as record batches."""
        if not isinstance(partition, _RangePartition):
            return  # Spark reads something even where there is nothing
        sink = _RowSink(None if self._skip_bad else self._plan.topic)
        loader = TopicLoader(self._plan, 0, sink)
        for _, found in BrokerFetcher(self._client).fetch([partition.range]):
            messages = found if isinstance(found, Messages) else Messages.of(found)
            if len(messages):
                loader.add(messages)
            loader.flush()
            yield from sink.take()


class _BatchReader(_TopicReader, DataSourceReader):
    """A topic as it is when the query is planned."""

    def __init__(self, client: Mapping[str, Any], plan: TopicPlan, options: Mapping[str, str]):
        super().__init__(client, plan, options)
        self._start = Position.parse(options.get("start", "earliest"))

    def partitions(self) -> Sequence[InputPartition]:
        """A range for each partition of the topic that has messages."""
        log = KafkaLog(self._client)
        ends = _require_watermarks(log, self._plan.topic)
        topic = self._plan.topic
        starts = self._start.starts(ends, lambda ms: log.offsets_at(topic, list(ends), ms))
        return [
            _RangePartition(Range(topic, p, max(start, ends[p].low), ends[p].high))
            for p, start in sorted(starts.items())
            if max(start, ends[p].low) < ends[p].high
        ]


class _StreamReader(_TopicReader, DataSourceStreamReader):
    """A topic from where the stream began, in Spark's micro-batches; Spark keeps the offsets."""

    def __init__(self, client: Mapping[str, Any], plan: TopicPlan, options: Mapping[str, str]):
        super().__init__(client, plan, options)
        self._start = Position.parse(options.get("start", "earliest"))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where a new stream begins."""
        log, topic = KafkaLog(self._client), self._plan.topic
        ends = _require_watermarks(log, topic)
        starts = self._start.starts(ends, lambda ms: log.offsets_at(topic, list(ends), ms))
        return {str(p): max(starts.get(p, ends[p].high), ends[p].low) for p in ends}

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: dict[str, int],  # noqa: ARG002 - Spark's signature
        limit: ReadLimit,  # noqa: ARG002
    ) -> dict[str, int]:
        """Where the topic ends now: a batch takes everything that is new."""
        ends = _require_watermarks(KafkaLog(self._client), self._plan.topic)
        return {str(p): mark.high for p, mark in ends.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The ranges between two offsets; a partition that is new begins at nought."""
        return [
            _RangePartition(Range(self._plan.topic, int(p), start.get(p, 0), high))
            for p, high in sorted(end.items())
            if start.get(p, 0) < high
        ]

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget: the broker keeps what it keeps."""


class _RowSink:
    """Takes what the loader's decoder writes; `strict` names the topic if bad messages end it."""

    def __init__(self, strict: str | None) -> None:
        self._strict = strict
        self._batches: list[Any] = []

    def write(self, topic: str, table: str, rows: Any, days: object) -> None:  # noqa: ARG002
        """Take rows; raise CorruptError for the first bad message."""
        if table != QUARANTINE_TABLE:
            names = [name for name in rows.schema.names if name != "_load"]
            self._batches.extend(rows.select(names).combine_chunks().to_batches())
        elif self._strict is not None:
            bad = rows.slice(0, 1).to_pylist()[0]
            raise CorruptError(
                f"{self._strict}[{bad['_partition']}] offset {bad['_offset']} is no row: "
                f"{bad['reason']}",
                fix='read with .option("bad", "skip") to leave such messages out',
            )

    def take(self) -> list[Any]:
        """The rows since the last call."""
        batches, self._batches = self._batches, []
        return batches


@dataclass
class _SentRows(WriterCommitMessage):
    """How many rows a task sent."""

    rows: int


class _EventWriter(DataSourceArrowWriter):
    """Sends rows as events in the schema that was the latest when the write began."""

    def __init__(self, client: Mapping[str, Any], plan: TopicPlan, key: str | None) -> None:
        self._client = client
        self._plan = plan
        self._key = key

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task; returns when the broker has them."""
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
            producer.flush(_FLUSH_SECONDS)  # what went before is said to have been sent
            raise
        if failed or left:
            raise UnreachableError(
                f"broker {self._client['bootstrap.servers']} did not take the rows of a task: "
                f"{failed[0] if failed else f'{left} left after {_FLUSH_SECONDS} s'}",
                fix="what it took stays in the topic, and sending again sends it again",
            )
        return _SentRows(sent)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: a row is in the topic when its task is over."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Rows that were sent stay: a log does not forget."""

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
        if failed:  # each further queue full would take its minutes to fail, too
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
    """What a table of the topic has, but for the load: there is none."""
    metadata = (f for f in METADATA if f.name != "_load")
    return (*table_columns(parse(plan.latest.text, strict=False)), *metadata)


def _require_watermarks(log: KafkaLog, topic: str) -> Mapping[int, Any]:
    partitions = log.partitions().get(topic)
    if partitions is None:
        raise UsageError(f"there is no topic {topic} on the broker")
    marks = log.watermarks({topic: partitions})[topic]
    if away := [p for p in partitions if p not in marks]:
        raise unled(topic, away)  # a query that leaves rows out is no answer
    return marks
