"""Events without a generated class: JSON values to an event that `Producer.send` takes.

For tools that learn the schema at run time, such as `headworks produce`. Applications generate
classes.

Rules: a value has the form that Avro's JSON encoding gives its type, with two exceptions. A union's
value has no type name around it, and dates, times, timestamps, and decimals may be text. An event
of a union at the top may have its name around it, and needs that if it fits several branches.
Nothing else is guessed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any, ClassVar
from uuid import UUID

from fastavro import parse_schema, schemaless_writer
from fastavro.validation import ValidationError, validate

from headworks.codec import EventType
from headworks.codec.values import key_text, millis
from headworks.errors import UsageError
from headworks.schema import (
    Array,
    Field,
    Fixed,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
    governance_of,
    parse,
)
from headworks.schema._canonical import fingerprint
from headworks.schema._quoting import quote

_VALUE_ERRORS = (
    ArithmeticError,
    InvalidOperation,
    LookupError,
    TypeError,
    ValueError,
    ValidationError,
)
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
}


class UntypedEvent:
    """An event of JSON values; `event_class` makes its class, which knows the schema."""

    __slots__ = ("plain",)
    __headworks__: ClassVar[EventType[Any]]

    def __init__(self, plain: Any) -> None:
        self.plain = plain


def event_class(topic: str, text: str) -> type[UntypedEvent]:
    """Return the class of events of `topic` with the schema `text`; SchemaError if it is none.

    To encode an event that does not fit raises UsageError with the reason.
    """
    schema = parse(text)
    governance_of(schema)  # refuses a schema that is not of events
    avro = parse_schema(json.loads(text))
    branches = schema.branches if isinstance(schema, Union) else (schema,)
    records = tuple(branch for branch in branches if isinstance(branch, Record))

    def values(event: UntypedEvent) -> tuple[Record, Any]:
        record, plain = _of_branch(records, event.plain)
        try:
            return record, _value(record, plain)
        except RecursionError:
            raise UsageError(f"the event of {topic} is nested too deeply") from None

    def encode(event: UntypedEvent) -> bytes:
        out = io.BytesIO()
        try:
            record, plain = values(event)
            whole = (record.name, plain) if isinstance(schema, Union) else plain
            validate(whole, avro, strict=True)
            schemaless_writer(out, avro, whole)
        except _VALUE_ERRORS as error:
            why = _reason(error) if isinstance(error, ValidationError) else error
            raise UsageError(f"the event does not fit the schema of {topic}: {why}") from None
        return out.getvalue()

    def at(plain: Any, path: tuple[str, ...]) -> Any:
        return reduce(lambda value, name: value[name], path, plain)

    def event_time(event: UntypedEvent) -> int:
        record, plain = values(event)
        path = governance_of(record).event_time
        when = datetime.now(UTC) if path is None else at(plain, path)
        return millis(when) if isinstance(when, datetime) else int(when)

    def key(event: UntypedEvent) -> bytes | None:
        record, plain = values(event)
        paths = governance_of(record).key
        return key_text(*(at(plain, path) for path in paths)) if paths else None

    kind: EventType[Any] = EventType(
        getattr(schema, "name", topic),
        {field.name: field.name for record in records for field in record.fields},
        schema=text,
        fingerprint=fingerprint(schema),
        topic=topic,
        encode=encode,
        event_time=event_time if any(governance_of(each).event_time for each in records) else None,
        key=key if any(governance_of(each).key for each in records) else None,
        types=dict,
    )
    return type("UntypedEvent", (UntypedEvent,), {"__slots__": (), "__headworks__": kind})


def _of_branch(records: Sequence[Record], plain: Any) -> tuple[Record, Any]:
    """Return the record of an event among those of a union, and its fields. Raises ValueError."""
    if len(records) == 1 or not isinstance(plain, dict):
        return records[0], plain
    for record in records:
        if list(plain) == [record.name]:
            return record, plain[record.name]
    fitting = [record for record in records if _has_fields(record, plain)]
    if len(fitting) != 1:
        names = " or ".join(record.name for record in fitting or records)
        raise ValueError(
            f'it does not say whether it is a {names}: write {{"{records[0].name}": {{...}}}}'
        )
    return fitting[0], plain


def _has_fields(record: Record, plain: Mapping[str, Any]) -> bool:
    needed = {field.name for field in record.fields if not field.has_default}
    return needed <= set(plain) <= {field.name for field in record.fields}


def _value(schema: Schema, plain: Any) -> Any:
    """Return the Python value that fastavro writes for a JSON value."""
    if isinstance(schema, Record) and isinstance(plain, dict):
        known = {f.name: f for f in schema.fields}
        for name in plain:
            if name not in known:
                raise _FieldError(f"{schema.name} has no field {name!r}")
        for name, field in known.items():
            if name not in plain and not field.has_default:
                raise _FieldError(f"{schema.name}.{name} is missing, and has no default")
        return {name: _field(schema, known[name], value) for name, value in plain.items()}
    if isinstance(schema, Array) and isinstance(plain, list):
        return [_value(schema.items, item) for item in plain]
    if isinstance(schema, MapType) and isinstance(plain, dict):
        return {name: _value(schema.values, value) for name, value in plain.items()}
    if isinstance(schema, Union):
        nullable = schema.nullable
        return plain if nullable is None or plain is None else _value(nullable, plain)
    if isinstance(schema, Primitive | Fixed) and isinstance(plain, str):
        return _from_text(schema, plain)
    return plain


def _field(record: Record, field: Field, plain: Any) -> Any:
    try:
        return _value(field.type, plain)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, _FieldError):
            raise
        wanted = field.type.nullable if isinstance(field.type, Union) else field.type
        name = getattr(getattr(wanted, "logical", None), "name", "a value of the schema")
        raise _FieldError(
            f"{record.name}.{field.name} is {quote(plain)}, expected {name}"
        ) from error


class _FieldError(ValueError):
    """A field whose text is no value of its type; names the field."""


def _from_text(schema: Primitive | Fixed, text: str) -> Any:
    read = _FROM_TEXT.get(schema.logical.name) if schema.logical else None
    if read is not None:
        value = read(text)
        if isinstance(value, datetime) and schema.logical and schema.logical.name[0] == "t":
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        return value
    return text.encode("latin-1") if schema.kind in ("bytes", "fixed") else text


def _reason(error: ValidationError) -> str:
    """Return the innermost value that does not fit; the library's text holds whole schemas."""
    last = error.errors[-1]
    wanted = dict.fromkeys(_kind(one.schema) for one in error.errors if one.field == last.field)
    return f"{last.field or 'it'} is {quote(last.datum)}, expected {' or '.join(wanted)}"


def _kind(avro: Any) -> str:
    if isinstance(avro, dict):
        return str(avro.get("name") or avro.get("logicalType") or avro["type"])
    return " or ".join(map(_kind, avro)) if isinstance(avro, list) else str(avro)
