"""A schema as fastavro reads it like Avro Java, and the decoding of both compared.

What fastavro does differently, one by one, so that whatever else differs is a finding:

- it hands out a field's default as the JSON that is written there (text for bytes, an int for a
  double, a record without the members that have defaults): it is given the values instead;
- it takes an empty namespace inside another one for none: types without a namespace get one;
- logical types become Python values, whose range is smaller: it is given the types below them;
- in a union it takes the first branch that the value can be promoted to, where Java takes the exact
  one further on: `promotes_before_exact` tells such schemas;
- a promoted float keeps the digits of a double: `same` rounds when the reader has a float.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from typing import Any, cast

import fastavro

from headworks.schema._defaults import is_default
from headworks.schema._model import (
    Array,
    EnumType,
    Field,
    Fixed,
    Json,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)

PROMOTED = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def fastavro_form(schema: Schema) -> Any:
    """The schema parsed by fastavro, in the form in which it is right.

    As the one field of a record: that costs no byte, and only a record is parsed once for all.
    """
    top = {"name": "top", "type": _form(schema, set())}
    record = {"type": "record", "name": "around.Top", "fields": [top]}
    return fastavro.parse_schema(record, _ignore_default_error=True)


def decoded(data: bytes, writer: Any, reader: Any = None) -> Any:
    """One datum, decoded whole: bytes that are left over are an error."""
    stream = io.BytesIO(data)
    value = fastavro.schemaless_reader(stream, writer, reader)
    assert stream.read() == b""
    return value


def promotes_before_exact(schema: Schema) -> bool:
    """Whether some union has a branch before another one that could become it."""
    for node in _nodes(schema):
        if isinstance(node, Union):
            kinds = [branch.kind for branch in node.branches]
            for i, kind in enumerate(kinds):
                if PROMOTED.get(kind, set()) & set(kinds[i + 1 :]):
                    return True
    return False


def same(got: Any, want: Any, *, narrow: bool) -> bool:
    """Whether two decoded values are equal, types included; `narrow`: as 32-bit floats."""
    if isinstance(got, dict) and isinstance(want, dict):
        return got.keys() == want.keys() and all(
            same(got[key], want[key], narrow=narrow) for key in got
        )
    if isinstance(got, list) and isinstance(want, list):
        pairs = zip(got, want, strict=False)
        return len(got) == len(want) and all(same(a, b, narrow=narrow) for a, b in pairs)
    if isinstance(got, float) and isinstance(want, float):
        if math.isnan(got) or math.isnan(want):
            return math.isnan(got) and math.isnan(want)
        return got == want or (narrow and struct.pack("<f", got) == struct.pack("<f", want))
    return type(got) is type(want) and bool(got == want)


def _form(node: Schema, seen: set[int]) -> Any:
    if isinstance(node, Primitive):
        return node.kind
    if isinstance(node, Array):
        return {"type": "array", "items": _form(node.items, seen)}
    if isinstance(node, MapType):
        return {"type": "map", "values": _form(node.values, seen)}
    if isinstance(node, Union):
        return [_form(branch, seen) for branch in node.branches]
    if id(node) in seen:
        return _full(node.name)
    seen.add(id(node))
    form: dict[str, Any] = {"type": node.kind, "name": _full(node.name)}
    if node.aliases:
        form["aliases"] = [_full(alias) for alias in node.aliases]
    if isinstance(node, Fixed):
        return {**form, "size": node.size}
    if isinstance(node, EnumType):
        default = {} if node.default is None else {"default": node.default}
        return {**form, "symbols": list(node.symbols), **default}
    form["fields"] = [_field(one, seen) for one in node.fields]
    return form


def _field(one: Field, seen: set[int]) -> dict[str, Any]:
    form = {"name": one.name, "type": _form(one.type, seen), "aliases": list(one.aliases)}
    if one.has_default:
        form["default"] = _value(one.type, cast(Json, one.default), 0)
    return form


def _value(schema: Schema, value: Json, depth: int) -> Any:
    """The value that a default stands for; as it is where it stands for none."""
    if isinstance(schema, Union):
        branches = [branch for branch in schema.branches if is_default(branch, value)]
        return _value(branches[0], value, depth) if branches else value
    if schema.kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1", "replace")
    if schema.kind in ("float", "double") and isinstance(value, int):
        return float(value)
    if isinstance(schema, Array) and isinstance(value, list):
        return [_value(schema.items, item, depth) for item in value]
    if isinstance(schema, MapType) and isinstance(value, dict):
        return {key: _value(schema.values, item, depth) for key, item in value.items()}
    if isinstance(schema, Record) and isinstance(value, dict) and depth < 20:
        given = {f.name: value.get(f.name, f.default) for f in schema.fields}
        return {f.name: _value(f.type, cast(Json, given[f.name]), depth + 1) for f in schema.fields}
    return value


def _full(name: str) -> str:
    return name if "." in name else f"without.{name}"


def _nodes(schema: Schema) -> Iterator[Schema]:
    seen: set[int] = set()
    stack = [schema]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, Record):
            stack += [one.type for one in node.fields]
        elif isinstance(node, Array):
            stack.append(node.items)
        elif isinstance(node, MapType):
            stack.append(node.values)
        elif isinstance(node, Union):
            stack += node.branches
