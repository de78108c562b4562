"""Field defaults: whether a JSON value is one of a type's values (Avro 1.12.0, "Complex Types").

A default for a union may belong to any branch, as Avro Java 1.12.1 accepts it.
"""

from __future__ import annotations

from collections.abc import Set

from headworks.errors import SchemaError
from headworks.schema._example_defaults import example_default
from headworks.schema._model import (
    Array,
    EnumType,
    Fixed,
    Json,
    MapType,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)
from headworks.schema._quoting import quote

_MAX_BRANCHES_SHOWN = 8
_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


def check_default(schema: Schema, value: Json, at: str, open_names: Set[str]) -> None:
    """Raise SchemaError, at the JSON pointer `at`, unless `value` is a default of `schema`.

    `open_names` are records still being defined: as in Java, a default cannot hold a value of them.
    """
    if not is_default(schema, value, open_names):
        raise SchemaError(
            f"default {quote(value)} is not a value of type {_describe(schema)}",
            pointer=at,
            rule="default",
            fix="give a default of the field's type" + _such_as(schema),
        )


def _such_as(schema: Schema) -> str:
    example = example_default(schema)
    if example is None:
        return ""
    of_bytes = ', with one character of "\\u0000" to "\\u00ff" a byte'
    return f", such as {example}{of_bytes if schema.kind in ('bytes', 'fixed') else ''}"


def _describe(schema: Schema) -> str:
    if isinstance(schema, Named):
        return schema.name
    if isinstance(schema, Union):
        names = [_describe(branch) for branch in schema.branches[:_MAX_BRANCHES_SHOWN]]
        return (
            "["
            + ", ".join([*names, "..."] if len(schema.branches) > _MAX_BRANCHES_SHOWN else names)
            + "]"
        )
    return schema.kind


def is_default(
    schema: Schema,
    value: Json,
    open_names: Set[str] = frozenset(),
    seen: dict[tuple[int, int], bool] | None = None,
) -> bool:
    """Return whether `value` is a default of `schema`; as in Java, any text is a symbol.

    `seen` holds the answers below the value, because branches of unions ask the same again.
    Values nest no deeper than `parse` lets them.
    """
    if isinstance(schema, Primitive):
        return _is_primitive(schema.kind, value)
    if isinstance(schema, (Fixed, EnumType)):
        return isinstance(value, str)
    known = {} if seen is None else seen
    key = (id(schema), id(value))
    answer = known.get(key)
    if answer is None:
        answer = known[key] = _is_complex(schema, value, open_names, known)
    return answer


def _is_complex(
    schema: Array | MapType | Union | Record,
    value: Json,
    open_names: Set[str],
    seen: dict[tuple[int, int], bool],
) -> bool:
    if isinstance(schema, Union):
        return any(is_default(branch, value, open_names, seen) for branch in schema.branches)
    if isinstance(schema, Array):
        return isinstance(value, list) and all(
            is_default(schema.items, item, open_names, seen) for item in value
        )
    if not isinstance(value, dict):
        return False
    if isinstance(schema, MapType):
        return all(is_default(schema.values, item, open_names, seen) for item in value.values())
    if schema.name in open_names:
        raise SchemaError(
            f"a default holds a value of {schema.name}, inside the definition of that type",
            pointer=schema.pointer,
            rule="default",
            fix="leave the default out, or put another branch first in the union",
        )
    return all(
        is_default(f.type, value[f.name], open_names, seen) if f.name in value else f.has_default
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
