"""Message values to events: the writer's bytes, resolved to the reader's schema, as objects.

Rules:

- The writer's schema is found by the id in the message and kept for ever: an id never changes.
- With a class, its schema is the reader's (Avro 1.12.0, "Schema Resolution"): what the writer did
  not know takes its default. Without one, events are dicts in the writer's own schema.
- Bytes that do not decode raise DecodeError with the reason; they never give a half-filled event.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro._read_common import SchemaResolutionError
from fastavro.schema import SchemaParseException

from consumer_sdk.defaults import from_json_default
from headworks.codec.event import EventType, RecordType
from headworks.errors import HeadworksError
from headworks.registry_client import RegistryClient
from headworks.schema import (
    Array,
    EnumType,
    Fixed,
    MapType,
    Record,
    Schema,
    Union,
    parse,
    subject_of,
)
from headworks.wire import unframe

__all__ = ["DecodeError", "Decoder"]

Build = Callable[[Any], Any]
_NAMED = (Record, EnumType, Fixed)
_BAD_DATA = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    SchemaParseException,
    SchemaResolutionError,
    StopIteration,
    TypeError,
    ValueError,
)


class DecodeError(HeadworksError):
    """A message value that is not an event of the schema it names."""


class Decoder:
    """Decodes the values of `topic`, to `event_type`'s class or (None) to dicts."""

    def __init__(
        self, registry: RegistryClient, topic: str, event_type: EventType[Any] | None = None
    ) -> None:
        self._registry = registry
        self._subject = subject_of(topic)
        self._writers: dict[int, Any] = {}
        self._versions: dict[int, int | None] = {}
        self._reader: Any = None
        self._build: Build = _as_it_is
        if event_type is not None:
            self._reader = parse_schema(json.loads(event_type.schema))
            self._build = _Builder(event_type.types).build(parse(event_type.schema))

    def decode(self, value: bytes) -> tuple[Any, int]:
        """The event in a message value, and the id of the schema it was written with.

        Raises FramingError if the value is not framed, DecodeError if the bytes do not fit, and
        UnreachableError if the schema is not known yet and no registry answers.
        """
        schema_id, payload = unframe(value)
        writer = self._writers.get(schema_id)
        if writer is None:
            writer = self._writers[schema_id] = self._fetch(schema_id)
        source = io.BytesIO(payload)
        try:
            plain = schemaless_reader(
                source,
                writer,
                self._reader,
                return_named_type=self._reader is not None,
            )
            event = self._build(plain)
        except _BAD_DATA as error:
            reason = str(error) or type(error).__name__
            raise DecodeError(
                f"the bytes are not an event of schema {schema_id}: {reason}"
            ) from error
        if source.tell() != len(payload):
            left = len(payload) - source.tell()
            raise DecodeError(f"{left} bytes follow the event of schema {schema_id}")
        return event, schema_id

    def version(self, schema_id: int) -> int | None:
        """The version of a schema in the topic's subject, or None if it is not there."""
        if schema_id not in self._versions:
            self._versions[schema_id] = self._registry.version_of(schema_id, self._subject)
        return self._versions[schema_id]

    def _fetch(self, schema_id: int) -> Any:
        try:
            return parse_schema(json.loads(self._registry.schema_text(schema_id)))
        except (SchemaParseException, ValueError) as error:
            raise DecodeError(f"schema {schema_id} cannot be read: {error}") from error


def _as_it_is(plain: Any) -> Any:
    return plain


class _Builder:
    """Compiles a reader schema to functions from fastavro's plain values to typed ones."""

    def __init__(self, types: Mapping[str, type]) -> None:
        self._types = types
        self._records: dict[str, Build] = {}

    def build(self, schema: Schema) -> Build:
        if isinstance(schema, Record):
            return self._record(schema)
        if isinstance(schema, EnumType):
            return self._types[schema.name]
        if isinstance(schema, Array):
            items = self.build(schema.items)
            return _unless_plain(items, lambda plain: [items(item) for item in plain])
        if isinstance(schema, MapType):
            values = self.build(schema.values)
            return _unless_plain(values, lambda plain: {k: values(v) for k, v in plain.items()})
        if isinstance(schema, Union):
            return self._union(schema)
        return from_json_default(schema) or _as_it_is

    def _record(self, schema: Record) -> Build:
        if schema.name in self._records:
            return self._records[schema.name]
        cls: Any = self._types[schema.name]
        told: RecordType[Any] = cls.__headworks__
        parts: list[tuple[str, str, Build, Any]] = []

        def record(plain: Any) -> Any:
            return cls(
                **{
                    attribute: make(plain.get(name, default))
                    for attribute, name, make, default in parts
                }
            )

        self._records[schema.name] = record  # before its fields: a record may hold itself
        parts += [
            (told.fields[f.name], f.name, self.build(f.type), f.default) for f in schema.fields
        ]
        return record

    def _union(self, schema: Union) -> Build:
        """Fastavro gives a named type as (name, value), so that no branch has to be guessed."""
        named = {b.name: self.build(b) for b in schema.branches if isinstance(b, _NAMED)}
        others = [(b, self.build(b)) for b in schema.branches if not isinstance(b, _NAMED)]
        if not named and all(make is _as_it_is for _, make in others):
            return _as_it_is

        def branch(plain: Any) -> Any:
            if plain is None:
                return None
            if isinstance(plain, tuple):
                return named[plain[0]](plain[1])
            for node, make in others:
                if _fits(node, plain):
                    return make(plain)
            return self._resolved(schema, named, plain)

        return branch

    @staticmethod
    def _resolved(schema: Union, named: Mapping[str, Build], plain: Any) -> Any:
        """A value whose writer had no union: it bears no name, so its form must tell."""
        for node in schema.branches:
            if isinstance(node, Record) and isinstance(plain, dict):
                if plain.keys() == {f.name for f in node.fields}:
                    return named[node.name](plain)
            elif isinstance(node, EnumType) and plain in node.symbols:
                return named[node.name](plain)
        return plain


def _unless_plain(inner: Build, outer: Build) -> Build:
    """`outer`, or nothing to do at all if there is nothing to do for what is inside."""
    return _as_it_is if inner is _as_it_is else outer


def _fits(node: Schema, plain: Any) -> bool:
    if isinstance(node, Array):
        return isinstance(plain, list)
    return isinstance(node, MapType) and isinstance(plain, dict)
