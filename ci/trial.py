"""A proposed schema, tried on the newest messages of its topic: which of them it cannot read.

Rules:

- Messages are decoded by the decoder of the loader, compiled if that was built. A schema that no
  table can follow is read by fastavro instead, which is slower.
- A message that its own schema cannot read either is not the fault of the change, and is only
  counted. Tombstones are not tried.
- Nothing is written, and no group is joined. Memory is bounded by one fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from hadoop_loader._decode.decoder import ColumnDecoder
from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.damage import DamageReport
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.messages import NO_SCHEMA, MessageColumns
from hadoop_loader._fetch.ranges import FetchRange, Watermarks
from hadoop_loader._fetch.row_numbers import of_ints, rows_where, scalar
from headworks._ci.rules import CATALOG_RULES
from headworks._decoding.plain_values import PlainDecoder
from headworks._kafka.client_properties import client_properties
from headworks._wire import HEADER_SIZE
from headworks.compatibility import Finding
from headworks.errors import HeadworksError, RefusedError, SchemaError
from headworks.registry_client import RegistryClient
from headworks.schema import Schema, parse, topic_of
from headworks.schema._canonical import canonical_text

_MAX_PLACES = 10
_MAX_REASONS = 20
_RULE = "HW304"


@dataclass(slots=True)
class UnreadableMessages:
    """Messages that fail for one reason: their number, and the places of the first ones."""

    schema_id: int
    reason: str
    messages: int = 0
    places: list[str] = field(default_factory=list)  # partition:offset


@dataclass(slots=True)
class Trial:
    """The result of a trial."""

    topic: str
    tried: int = 0
    unreadable: dict[tuple[int, str], UnreadableMessages] = field(default_factory=dict)
    bad_before: int = 0  # messages that their own schema cannot read, or that have no known one
    damaged: int = 0  # messages in record batches whose CRC is wrong

    @property
    def note(self) -> str:
        """The result in one sentence."""
        if not self.tried:
            return f"tried on no message: {self.topic} has none"
        failed = sum(one.messages for one in self.unreadable.values())
        told = f"{failed:,} cannot be read" if failed else "all can be read"
        more = f", {self.bad_before:,} could not before either" if self.bad_before else ""
        more += f", {self.damaged:,} are damaged" if self.damaged else ""
        return f"tried on the newest {self.tried:,} messages of {self.topic}: {told}{more}"

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for each reason for which messages cannot be read."""
        for one in self.unreadable.values():
            places = ", ".join(one.places) + (", .." if one.messages > len(one.places) else "")
            message = (
                f"The proposed schema cannot read {one.messages:,} of the newest {self.tried:,} "
                f"messages of {self.topic}, written with schema {one.schema_id}: {one.reason} "
                f"(partition:offset {places})"
            )
            fix = f"keep what messages of schema {one.schema_id} need, "
            fix += "or wait until retention has removed them"
            kind = CATALOG_RULES[_RULE][0]
            yield Finding(_RULE, kind, message, fix, "", "", "")


class MessageTrials:
    """Tries schemas on the newest `most` messages of their topics, at one broker and registry."""

    def __init__(self, bootstrap: str, registry: RegistryClient, most: int) -> None:
        self._client = client_properties(bootstrap)
        self._registry = registry
        self._most = most

    def __call__(self, subject: str, schema: Schema) -> Trial | None:
        """Try a schema; None for a subject that is not of a topic's values.

        Raises UnreachableError if the broker or the registry does not answer.
        """
        topic = topic_of(subject)
        if topic is None:
            return None
        log = KafkaLog(self._client)
        partitions = log.partitions().get(topic, ())
        marks = log.watermarks({topic: partitions})[topic] if partitions else {}
        found = Trial(topic)
        reader = _Reader(schema, self._registry)
        damage = DamageReport(skip=True)
        with BrokerFetcher(self._client) as fetcher:
            for _, messages in fetcher.fetch(newest_ranges(topic, marks, self._most), damage):
                columns = (
                    messages
                    if isinstance(messages, MessageColumns)
                    else MessageColumns.of(messages)
                )
                _try(reader, columns, found)
        found.damaged = sum(one.size for one in damage.found)
        return found


def newest_ranges(topic: str, marks: Mapping[int, Watermarks], most: int) -> list[FetchRange]:
    """Return the last offsets of the partitions: `most` in all, spread as evenly as possible."""
    sizes = {partition: mark.high - mark.low for partition, mark in marks.items()}
    found = []
    left, waiting = most, len(sizes)
    for partition, size in sorted(sizes.items(), key=lambda one: (one[1], one[0])):
        share = min(size, -(-left // waiting))
        left, waiting = left - share, waiting - 1
        end = marks[partition].high
        if share:
            found.append(FetchRange(topic, partition, end - share, end))
    return sorted(found)


class _Reader:
    """Reads messages of any writer with one schema; finds those that cannot be read."""

    def __init__(self, schema: Schema, registry: RegistryClient) -> None:
        self._schema = schema
        self._registry = registry
        self._decoders: dict[int, _Decode | None] = {}  # by schema id; None: it is not known
        self._own: dict[int, _Decode] = {}  # with the writer's schema, by schema id

    def failures(self, schema_id: int, messages: MessageColumns) -> list[tuple[int, str]] | None:
        """Return the index and reason of each message that fails; None for an unknown schema."""
        if schema_id not in self._decoders:
            self._decoders[schema_id] = self._prepare(schema_id)
        decode = self._decoders[schema_id]
        return None if decode is None else decode(messages)

    def was_bad(self, schema_id: int, messages: MessageColumns) -> set[int]:
        """Return the indexes of the messages that their own schema cannot read."""
        return {at for at, _ in self._own[schema_id](messages)}

    def _prepare(self, schema_id: int) -> _Decode | None:
        try:
            writer = parse(self._registry.schema_text(schema_id), strict=False)
        except (RefusedError, SchemaError):
            return None
        self._own[schema_id] = _Decode(writer, writer)
        return _Decode(writer, self._schema)


class _Decode:
    """Reads data of `writer` as `reader`, and keeps nothing."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        self._texts = canonical_text(writer), canonical_text(reader)
        try:
            self._columns: ColumnDecoder | None = ColumnDecoder(writer, reader)
        except HeadworksError:  # no table can follow the schema
            self._columns = None
        self._plain: PlainDecoder | None = None

    def __call__(self, messages: MessageColumns) -> list[tuple[int, str]]:
        if self._columns is not None:
            spans = messages.data, messages.starts, messages.ends
            try:
                return list(self._columns.decode_spans(*spans)[1])
            except HeadworksError:  # a pair that is too large for the compiled decoder
                self._columns = None
        return list(self._read_singly(messages))

    def _read_singly(self, messages: Iterable[Any]) -> Iterator[tuple[int, str]]:
        if self._plain is None:
            self._plain = PlainDecoder(*self._texts)
        for at, message in enumerate(messages):
            try:
                self._plain.decode(message.value, HEADER_SIZE)
            except Exception as error:  # fastavro raises errors of many kinds for bad bytes
                yield at, str(error) or type(error).__name__


def _try(reader: _Reader, messages: MessageColumns, found: Trial) -> None:
    ids = messages.schema_ids()
    # The numbers of the messages with a value.
    alive = rows_where(pc.greater_equal(messages.starts, scalar(0)))
    messages, ids = messages.where(alive), ids.take(alive)
    found.tried += len(messages)
    for schema_id in sorted(pc.unique(ids).to_pylist()):
        group = messages.with_schema(schema_id, ids)
        failed = None if schema_id == NO_SCHEMA else reader.failures(schema_id, group)
        if failed is None:
            found.bad_before += len(group)
            continue
        if not failed:
            continue
        bad = group.where(of_ints(at for at, _ in failed))
        before = reader.was_bad(schema_id, bad)
        found.bad_before += len(before)
        reasons = [reason for _, reason in failed]
        _add(found, schema_id, bad, reasons, before)


def _add(
    found: Trial, schema_id: int, bad: MessageColumns, reasons: Sequence[str], before: set[int]
) -> None:
    """Add the messages that only the proposed schema cannot read."""
    rows: dict[str, list[int]] = {}
    for at, reason in enumerate(reasons):
        if at not in before:
            rows.setdefault(reason, []).append(at)
    for reason, failed in rows.items():
        key = (schema_id, reason)
        if key not in found.unreadable and len(found.unreadable) >= _MAX_REASONS:
            key = (schema_id, "further reasons")
        one = found.unreadable.setdefault(key, UnreadableMessages(*key))
        one.messages += len(failed)
        for at in failed[: _MAX_PLACES - len(one.places)]:
            message = bad[at]
            one.places.append(f"{message.partition}:{message.offset}")
