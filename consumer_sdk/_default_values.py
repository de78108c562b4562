"""Defaults as they stand in a schema (JSON), to the values of a typed event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from consumer_sdk._conversions import GIVEN, expression
from headworks.codec._event import RecordType
from headworks.errors import SchemaError
from headworks.schema import Array, EnumType, Field, Fixed, MapType, Primitive, Schema, Union
from headworks.schema._defaults import is_default
from headworks.schema._model import Json

__all__ = ["event_default"]


def event_default(field: Field, types: Mapping[str, type]) -> Any:
    """The value of a field's default; `types` are the generated classes, by full name."""
    return _value(field.type, cast(Json, field.default), types)


def _value(schema: Schema, value: Json, types: Mapping[str, type]) -> Any:
    if isinstance(schema, (Primitive, Fixed)):
        return _leaf(schema, value)
    if isinstance(schema, EnumType):
        cls: Any = types[schema.name]
        return cls(value)
    if isinstance(schema, Array):
        return [_value(schema.items, item, types) for item in cast(list[Json], value)]
    if isinstance(schema, MapType):
        given = cast(dict[str, Json], value)
        return {key: _value(schema.values, inner, types) for key, inner in given.items()}
    if isinstance(schema, Union):
        for branch in schema.branches:
            if is_default(branch, value):
                return _value(branch, value, types)
        raise SchemaError(f"default {value!r} is of no branch of the union", pointer=schema.pointer)
    members = cast(dict[str, Json], value)
    record: Any = types[schema.name]
    told: RecordType[Any] = record.__headworks__
    return record(
        **{
            told.fields[f.name]: _value(f.type, members[f.name], types)
            if f.name in members
            else event_default(f, types)
            for f in schema.fields
        }
    )


def _leaf(schema: Primitive | Fixed, value: Json) -> Any:
    if schema.kind in ("null", "boolean"):
        return value
    if schema.kind in ("float", "double"):
        return float(cast(float, value))
    raw: Any = value
    if isinstance(schema, Fixed) or schema.kind == "bytes":
        raw = cast(str, value).encode("latin-1")
    elif schema.kind == "string":
        raw = cast(str, value).encode()
    return eval(expression(schema, schema), {**GIVEN, "v": raw})
