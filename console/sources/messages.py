"""Messages of one topic, decoded and masked, while a reader waits for them.

Rules:

- Reading is bounded: a few readers at a time (`page_consumers`), each with a deadline, a number of
  messages, and a number of bytes.
- A message is masked before any other use (`console.masking`), by every schema that the topic ever
  had and by its writer's schema. If those are unknown, no message is shown.
- Bytes are never shown for a topic with sensitive fields, decoded or not.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Raw

from headworks._console.masking import MASK, masked
from headworks._console.sources.page_consumers import PageConsumers
from headworks._console.sources.printable import hex_lines, printable, raw_value, text_of
from headworks._console.sources.shown_message import MessageSlice, ShownMessage, SkippedBatch
from headworks._kafka.clients import KafkaConsumer
from headworks._kafka.damaged_batch import DamagedBatch, damaged_batch, offset_after
from headworks._kafka.headers import Headers, message_headers
from headworks._wire import FramingError, unframe
from headworks.errors import CorruptError, HeadworksError, UnreachableError
from headworks.registry_client import RegistryClient
from headworks.schema import (
    Record,
    Schema,
    governance_of,
    key_subject_of,
    parse,
    subject_of,
)
from headworks.schema._sensitive import Paths, sensitive_paths

if TYPE_CHECKING:
    from consumer_sdk._decode import Decoder

_TIMEOUT_SECONDS = 5.0
_MAX_SCANNED_MESSAGES = 5_000
_MAX_FETCHED_MESSAGES = 500
_MAX_CACHED = 128
OffsetBounds = Mapping[int, tuple[int, int]]
# A topic, and the latest versions of the schemas of its values and of its keys.
_SchemaVersions = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class _MaskedPaths:
    """The sensitive paths of all of a topic's schemas together.

    `key` is True if the key is built from such a field. `key_paths` are those of the key schemas;
    None: no schema.
    """

    paths: Paths
    key: bool
    governed: bool
    key_paths: Paths | None

    @property
    def hides(self) -> bool:
        """Whether anything of the topic's messages is masked, so that no bytes are shown."""
        return bool(self.paths or self.key or self.key_paths)


class MessageReader:
    """Reads messages of the broker at `bootstrap`, with schemas of `registry`."""

    def __init__(
        self,
        bootstrap: str,
        registry: RegistryClient,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self.clock = clock
        self.consumers = PageConsumers(bootstrap)
        self._lock = threading.Lock()  # guards the three caches below
        self._decoders: OrderedDict[str, Decoder] = OrderedDict()
        self._masked_by_topic: OrderedDict[_SchemaVersions, _MaskedPaths] = OrderedDict()
        self._masked_by_schema: OrderedDict[int, Paths] = OrderedDict()

    @contextmanager
    def connected(self) -> Iterator[PageReader]:
        """Lend the one broker connection of a page."""
        with self.consumers.lend() as consumer:
            yield PageReader(self, consumer)

    def close(self) -> None:
        """Close the connections to the broker."""
        self.consumers.close()

    def renderer(
        self,
        topic: str,
        latest_version: int | None,
        key_version: int | None,
        *,
        with_bytes: bool = False,
    ) -> Callable[[Raw], ShownMessage]:
        """Return a function that decodes and masks messages of a topic."""
        masked_paths = self._masked_paths((topic, latest_version, key_version))
        decoder = self._decoder(topic)
        return lambda message: self._shown(message, decoder, masked_paths, with_bytes)

    def has_masked_fields(
        self, topic: str, latest_version: int | None, key_version: int | None
    ) -> bool:
        """Return whether any version of a topic's schemas has sensitive fields."""
        found = self._masked_paths((topic, latest_version, key_version))
        return bool(found.paths or found.key_paths)

    def _shown(
        self, message: Raw, decoder: Decoder, masked_paths: _MaskedPaths, with_bytes: bool
    ) -> ShownMessage:
        value = message.value()
        event, problem = None, None
        schema_id, version = None, None
        paths = masked_paths.paths
        if value is None:
            problem = "no value: a tombstone"
        else:
            try:
                decoded, schema_id = decoder.decode(value)
                version = decoder.version(schema_id)
                paths = paths | self._paths_of(schema_id)
                event = printable(masked(decoded, paths))
            except UnreachableError:
                raise
            except FramingError as error:
                problem = error.message if masked_paths.governed else None
                event = None if masked_paths.governed else raw_value(value)
            except HeadworksError as error:
                schema_id = unframe(value)[0]
                hidden = masked_paths.paths or self._may_be_sensitive(value)
                problem = f"the value does not decode with schema id {schema_id}"
                problem = problem if hidden else error.message
        headers = _headers(message)
        return ShownMessage(
            message.partition() or 0,
            message.offset() or 0,
            message.timestamp()[1],
            self._key(message.key(), decoder, masked_paths),
            tuple((name, text_of(inner)) for name, inner in headers),
            len(value or b""),
            schema_id,
            version,
            event,
            problem,
            () if masked_paths.hides or not with_bytes else hex_lines(value or b""),
        )

    def _key(self, key: bytes | None, decoder: Decoder, masked_paths: _MaskedPaths) -> str | None:
        """Return a key as it may be shown; a key with a schema as JSON."""
        if key is None or masked_paths.key_paths is None:
            return MASK if key is not None and masked_paths.key else text_of(key)
        try:
            decoded, schema_id = decoder.decode(key)
            paths = masked_paths.key_paths | self._paths_of(schema_id)
        except UnreachableError:
            raise
        except HeadworksError:
            return MASK if masked_paths.key or masked_paths.key_paths else text_of(key)
        shown = MASK if masked_paths.key else printable(masked(decoded, paths))
        return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)

    def _may_be_sensitive(self, value: bytes) -> bool:
        """Return whether a value's schema has sensitive fields or is unknown."""
        try:
            return bool(self._paths_of(unframe(value)[0]))
        except HeadworksError:
            return True

    def _decoder(self, topic: str) -> Decoder:
        from consumer_sdk._decode import Decoder  # the first page does not need it

        with self._lock:
            found = self._decoders.pop(topic, None) or Decoder(self._registry, topic)
            _cache(self._decoders, topic, found)
            return found

    def _masked_paths(self, governed: _SchemaVersions) -> _MaskedPaths:
        with self._lock:
            known = self._masked_by_topic.get(governed)
        if known is None:
            known = self._find_masked_paths(*governed)
            with self._lock:
                _cache(self._masked_by_topic, governed, known)
        return known

    def _find_masked_paths(
        self, topic: str, version: int | None, key_version: int | None
    ) -> _MaskedPaths:
        paths, key = Paths(), False
        for schema in self._all_versions(subject_of(topic)) if version is not None else ():
            paths |= sensitive_paths(schema)
            if isinstance(schema, Record):
                key = key or any(_overlaps(path, paths) for path in governance_of(schema).key)
        if key_version is None:
            return _MaskedPaths(paths, key, version is not None, None)
        ever = [sensitive_paths(schema) for schema in self._all_versions(key_subject_of(topic))]
        return _MaskedPaths(paths, key, version is not None, Paths().union(*ever))

    def _all_versions(self, subject: str) -> Iterator[Schema]:
        """Yield every schema of a subject, deleted ones too: their messages still exist."""
        for one in self._registry.list_versions(subject, deleted=True):
            if one.subject == subject:
                text = self._registry.schema_text(one.id) if one.references else one.text
                yield parse(text, strict=False)

    def _paths_of(self, schema_id: int) -> Paths:
        with self._lock:
            known = self._masked_by_schema.get(schema_id)
        if known is None:
            known = sensitive_paths(parse(self._registry.schema_text(schema_id), strict=False))
            with self._lock:
                _cache(self._masked_by_schema, schema_id, known)
        return known


class PageReader:
    """The broker connection of one page, from `MessageReader.connected`."""

    def __init__(self, reader: MessageReader, consumer: KafkaConsumer) -> None:
        self._reader = reader
        self._consumer = consumer

    def bounds(self, topic: str, partitions: int) -> OffsetBounds:
        """Return the first and the next offset of each partition."""
        return {
            number: self._consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=_TIMEOUT_SECONDS
            )
            for number in range(partitions)
        }

    def at_time(self, topic: str, bounds: OffsetBounds, millis: int) -> Mapping[int, int]:
        """Return each partition's first offset at or after a time, or its end."""
        asked = [TopicPartition(topic, number, millis) for number in bounds]
        found = self._consumer.offsets_for_times(asked, timeout=_TIMEOUT_SECONDS)
        return {
            one.partition: one.offset if one.offset >= 0 else bounds[one.partition][1]
            for one in found
        }

    def read(
        self,
        topic: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        latest_version: int | None,
        key_version: int | None,
        limit: int,
        keep: Callable[[ShownMessage], bool] | None = None,
        with_bytes: bool = False,
    ) -> MessageSlice:
        """Return at most `limit` messages between the offsets for which `keep` is true.

        `latest_version` is that of the topic's subject, and `key_version` that of its key subject;
        None: no subject. Messages of one partition are in its order, and others in that of time.
        """
        show = self._reader.renderer(topic, latest_version, key_version, with_bytes=with_bytes)
        wanted = {p: start for p, start in starts.items() if start < ends[p]}
        following = dict(starts)
        rows: list[ShownMessage] = []
        scanned = timestamp_ms = 0
        for message in self._messages(topic, wanted, ends):
            scanned += 1
            if isinstance(message, SkippedBatch):
                following[message.batch.partition] = message.following
                shown = message.shown(timestamp_ms)
            else:
                following[message.partition() or 0] = (message.offset() or 0) + 1
                shown = show(message)
                timestamp_ms = shown.timestamp_ms
            if keep is None or keep(shown):
                rows.append(shown)
            if len(rows) >= limit or scanned >= _MAX_SCANNED_MESSAGES:
                break
        complete = all(following[p] >= ends[p] for p in wanted)
        if len(starts) > 1:
            rows.sort(key=lambda row: (row.timestamp_ms, row.partition, row.offset))
        return MessageSlice(tuple(rows), scanned, following, complete)

    def _messages(
        self, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Iterator[Raw | SkippedBatch]:
        """Yield each partition from its start to its end, or until the deadline."""
        left = dict(starts)  # the next offset of each partition
        self._consumer.assign([TopicPartition(topic, p, start) for p, start in starts.items()])
        clock = self._reader.clock
        until = clock() + _TIMEOUT_SECONDS
        while left and clock() < until:
            lost: set[int] = set()  # partitions where librdkafka has lost its place
            for message in self._next_messages():
                partition, offset = message.partition() or 0, message.offset() or 0
                problem = message.error()
                if partition in lost:
                    continue
                damaged = damaged_batch(message, left.get(partition))
                if damaged is not None:
                    lost.add(partition)
                    skipped = self._step_over(damaged)
                    if partition in left and damaged.offset < ends[partition]:
                        yield skipped
                    offset, problem = skipped.following - 1, None
                elif problem is None:
                    # A message that an earlier page left behind is not shown on this one.
                    if message.topic() != topic or offset < left.get(partition, offset):
                        continue
                    if partition in left and offset < ends[partition]:
                        left[partition] = offset + 1
                        yield message
                elif problem.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(problem)
                if problem is not None or offset + 1 >= ends[partition]:
                    left.pop(partition, None)

    def _step_over(self, batch: DamagedBatch) -> SkippedBatch:
        following = offset_after(self._reader.consumers.connection, batch, timeout=_TIMEOUT_SECONDS)
        self._consumer.seek(TopicPartition(batch.topic, batch.partition, following))
        return SkippedBatch(batch, following)

    def _next_messages(self) -> list[Raw]:
        """Return available messages. librdkafka would wait until it has as many as requested."""
        first = self._consumer.consume(1, timeout=0.1)
        return first and first + self._consumer.consume(_MAX_FETCHED_MESSAGES, timeout=0)


def _cache(memory: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    memory[key] = value
    if len(memory) > _MAX_CACHED:
        memory.popitem(last=False)


def _overlaps(path: tuple[str, ...], paths: Paths) -> bool:
    """Return whether a field, a part of it, or its parent is sensitive."""
    return any(path[: len(one)] == one[: len(path)] for one in paths)


def _headers(message: Raw) -> Headers:
    try:
        return message_headers(message)
    except CorruptError as error:
        return [("(unknown)", error.message.encode())]
