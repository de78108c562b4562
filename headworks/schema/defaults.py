"""Field defaults: whether a JSON value is one of a type's values (Avro 1.12.0, "Complex Types").

A default for a union may belong to any branch, as Avro Java 1.12.1 accepts it.
"""

from __future__ import annotations

from headworks.errors import SchemaError
from headworks.schema.model import (
    Array,
    EnumType,
    Fixed,
    Json,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)

__all__ = ["check_default"]

_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


def check_default(schema: Schema, value: Json, at: str) -> None:
    """Raise SchemaError, at the JSON pointer `at`, unless `value` is a default of `schema`."""
    if not _is_valid(schema, value):
        raise SchemaError(
            f"default {value!r} is not a value of type {_describe(schema)}",
            pointer=at,
            rule="default",
            fix="give a default of the field's type, or leave it out",
        )


def _describe(schema: Schema) -> str:
    if isinstance(schema, (Record, EnumType, Fixed)):
        return schema.name
    if isinstance(schema, Union):
        return "[" + ", ".join(_describe(branch) for branch in schema.branches) + "]"
    return schema.kind


def _is_valid(schema: Schema, value: Json) -> bool:
    if isinstance(schema, Primitive):
        return _is_primitive(schema.kind, value)
    if isinstance(schema, Union):
        return any(_is_valid(branch, value) for branch in schema.branches)
    if isinstance(schema, Fixed):
        return isinstance(value, str)
    if isinstance(schema, EnumType):
        return isinstance(value, str)
    if isinstance(schema, Array):
        return isinstance(value, list) and all(_is_valid(schema.items, item) for item in value)
    if isinstance(schema, MapType):
        return isinstance(value, dict) and all(_is_valid(schema.values, v) for v in value.values())
    if not isinstance(value, dict):
        return False
    return all(
        _is_valid(f.type, value[f.name]) if f.name in value else f.has_default
        for f in schema.fields
    )


def _is_primitive(kind: str, value: Json) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    if kind in ("float", "double"):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, str)
