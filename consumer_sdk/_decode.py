"""Message values to events: bytes of the writer's schema, resolved to the reader's schema.

Rules:

- The id in the message names the writer's schema. It is cached forever, because an id never
  changes its meaning.
- With a class, the class's schema is the reader's (Avro 1.12.0, "Schema Resolution"): a field that
  the writer lacks takes its default. Without a class, events are dicts in the writer's schema.
- If the registry has no schema of that id, the message is bad. If the registry does not answer, or
  refuses for another reason, nothing is known about the message.
- Bytes that do not decode raise DecodeError with the reason. They never become a partial event.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from fastavro.schema import SchemaParseException

from consumer_sdk._generated_decoder import DATUM_ERRORS, Decode
from consumer_sdk._several_events import decoder_of
from consumer_sdk._untyped_events import to_dicts
from headworks._decoding.datum_check import DatumCheck
from headworks._decoding.primitives import BadDatumError
from headworks._wire import HEADER_SIZE, unframe
from headworks.codec._event import EventType
from headworks.errors import HeadworksError, RefusedError, SchemaError
from headworks.registry_client import SCHEMA_NOT_FOUND, RegistryClient
from headworks.schema import parse, subject_of

BAD_DATA = (
    *DATUM_ERRORS,
    ArithmeticError,
    EOFError,
    LookupError,
    SchemaParseException,
    StopIteration,
    TypeError,
)
"""The errors of a decoding function for bytes that it cannot decode."""
Known = tuple[Decode, int, int | None]
"""A decoding function, the id of its schema, and the schema's version."""


class DecodeError(HeadworksError):
    """A message value that is not an event of the schema it names."""


class Decoder:
    """Decodes the values of `topic` to the class of `event_type`, or to dicts (None).

    If several classes are of the topic, `others` are those of the rest.
    """

    def __init__(
        self,
        registry: RegistryClient,
        topic: str,
        event_type: EventType[Any] | None = None,
        *others: EventType[Any],
    ) -> None:
        self._registry = registry
        self._subject = subject_of(topic)
        # Decoding function and schema id by the header of the message.
        self._decoders: dict[bytes, tuple[Decode, int]] = {}
        # The same with the schema's version, once that was asked for.
        self.known: dict[bytes, Known] = {}
        # The version of each schema id in the topic's subject.
        self._versions: dict[int, int | None] = {}
        # Makes the decoding function of a writer's schema.
        self._compile: Callable[[str], Decode] = to_dicts
        self._class: str | None = None
        if event_type is not None:
            kinds = (event_type, *others)
            self._class = " or ".join(kind.name for kind in kinds)
            self._compile = decoder_of(kinds)

    def decode(self, value: bytes) -> tuple[Any, int]:
        """Return the event in a message value, and the id of its writer's schema.

        Raises FramingError if the value is not framed, DecodeError if the bytes do not fit the
        schema, and UnreachableError if the schema is not cached and no registry answers.
        """
        decode, schema_id = self._find(value)
        try:
            return decode(value, HEADER_SIZE), schema_id
        except BAD_DATA as error:
            raise self._error(value[HEADER_SIZE:], schema_id, error) from error

    def decode_with_version(self, value: bytes) -> tuple[Any, int, int | None]:
        """Return what `decode` returns, and the schema's version in the topic's subject."""
        head = value[:HEADER_SIZE]
        found = self.known.get(head)
        if found is None:
            event, schema_id = self.decode(value)
            self.known[head] = (*self._decoders[head], self.version(schema_id))
            return event, schema_id, self.version(schema_id)
        decode, schema_id, version = found
        try:
            return decode(value, HEADER_SIZE), schema_id, version
        except BAD_DATA as error:
            raise self._error(value[HEADER_SIZE:], schema_id, error) from error

    def _find(self, value: bytes) -> tuple[Decode, int]:
        head = value[:HEADER_SIZE]
        found = self._decoders.get(head)
        if found is None:
            schema_id, _ = unframe(value)
            found = self._decoders[head] = self._fetch(schema_id), schema_id
        return found

    def version(self, schema_id: int) -> int | None:
        """Return the version of a schema in the topic's subject; None if it has none there."""
        if schema_id not in self._versions:
            self._versions[schema_id] = self._registry.version_of(schema_id, self._subject)
        return self._versions[schema_id]

    def _error(self, datum: bytes, schema_id: int, error: Exception) -> DecodeError:
        """Return the error for bytes that did not decode: of the message, or of an older class."""
        reason = _reason(error)
        if self._class is not None and isinstance(error, BadDatumError):
            writer = parse(self._registry.schema_text(schema_id), strict=False)
            if DatumCheck(writer).explain(datum) is None:
                return DecodeError(
                    f"the event is good, and class {self._class} cannot read its schema"
                    f" {schema_id}: {reason}",
                    fix="generate the classes again with `headworks gen`, and deploy this program;"
                    " it then reads this message and those behind it, so skip none",
                )
        return DecodeError(f"the bytes are not an event of schema {schema_id}: {reason}")

    def _fetch(self, schema_id: int) -> Decode:
        try:
            return self._compile(self._registry.schema_text(schema_id))
        except RefusedError as error:
            if error.code != SCHEMA_NOT_FOUND:
                raise
            raise DecodeError(
                f"{self._registry.url} has no schema {schema_id}, which the message names"
            ) from error
        except (SchemaError, SchemaParseException, ValueError) as error:
            raise DecodeError(f"schema {schema_id} cannot be read: {error}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, (IndexError, EOFError, struct.error)):
        return "it ends too early"
    return str(error) or type(error).__name__
