"""What Avro Java calls compatible although the data does not survive it (policy `strict`).

Pure questions about one pair of types, or about one default; `resolution` asks them where it
meets them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import cast

from headworks.compatibility.words import type_name
from headworks.schema.defaults import is_default
from headworks.schema.model import (
    Array,
    EnumType,
    Field,
    Fixed,
    Json,
    MapType,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
    named_types,
)

__all__ = ["default_problem", "living_aliases", "living_field_aliases", "logical_problem"]


def living_aliases(reader: Schema, writer: Schema) -> Iterator[tuple[Named, Named]]:
    """Types of the reader with an alias that another of its types answers to as well.

    A reader renames the writer's types by its aliases before it looks at them, all of them.
    """
    mine = list(named_types(reader))
    theirs = {node.name: node for node in named_types(writer)}
    claims = Counter([node.name for node in mine] + [a for node in mine for a in set(node.aliases)])
    for node in mine:
        for alias in node.aliases:
            if alias != node.name and alias in theirs and claims[alias] > 1:
                yield node, theirs[alias]


def living_field_aliases(reader: Schema, writer: Schema) -> Iterator[tuple[Field, Field]]:
    """Fields with an alias that the writer's record of that name has beside the field itself.

    Also in records that resolution never meets: aliases are applied to all of the writer's schema,
    and twice, so that an alias which names a field with an alias of its own leads on.
    """
    theirs = {node.name: node for node in named_types(writer) if isinstance(node, Record)}
    for node in named_types(reader):
        other = theirs.get(node.name)
        if isinstance(node, Record) and other is not None:
            known = {f.name: f for f in other.fields}
            mine = {f.name: f for f in node.fields if f.aliases}
            for one in mine.values():
                for alias in one.aliases:
                    if alias in known and one.name in known and alias != one.name:
                        yield one, known[one.name]
                    next_ = mine.get(alias)
                    if next_ is not None and next_ is not one:
                        led = (known[a] for a in next_.aliases if a in known and a != next_.name)
                        yield from ((one, field) for field in led)


def logical_problem(
    reader: Primitive | Fixed, writer: Primitive | Fixed
) -> tuple[str, str, str] | None:
    """Rule, reason and fix if a value means something else to the reader; None if it does not."""
    mine, other = reader.logical, writer.logical
    if reader.kind == "string" and writer.kind == "bytes":
        why = "bytes that are not UTF-8 are no string"
        return "HW106", why, "keep bytes, or add a new string field, with a default"
    if mine == other:
        return None
    why = f"{type_name(writer)} is taken for {type_name(reader)}"
    if "decimal" in (mine and mine.name, other and other.name):
        return "HW104", why, "keep precision and scale, or add a new field, with a default"
    if mine is None and other is not None and other.name == "uuid":
        return None
    fix = "keep the logical type, or add a new field of the new one, with a default"
    return "HW105", why, fix


def default_problem(field: Field) -> str | None:
    """Why the default of `field` cannot be decoded as its type; None if it can."""
    if isinstance(field.type, Union) and field.default == []:
        return "Avro Java takes no empty list for a union"
    return _problem(field.type, cast(Json, field.default), set())


def _problem(schema: Schema, value: Json, inside: set[int]) -> str | None:
    if isinstance(schema, Union):
        return _union_problem(schema, value, inside)
    if isinstance(schema, EnumType):
        known = value in schema.symbols
        return None if known else f"{value!r} is not a symbol of {schema.name}"
    if isinstance(schema, Fixed) and isinstance(value, str):
        size = len(value)
        return None if size == schema.size else f"{schema.name} has {schema.size} bytes, not {size}"
    if schema.kind in ("bytes", "fixed") and isinstance(value, str):
        return None if all(c <= "\xff" for c in value) else f"{value!r} is not a text of bytes"
    if isinstance(schema, Array) and isinstance(value, list):
        return _first(_problem(schema.items, item, inside) for item in value)
    if isinstance(schema, MapType) and isinstance(value, dict):
        return _first(_problem(schema.values, item, inside) for item in value.values())
    if isinstance(schema, Record) and isinstance(value, dict):
        return _first(_member(one, value, inside) for one in schema.fields)
    return None


def _union_problem(union: Union, value: Json, inside: set[int]) -> str | None:
    """Java encodes a default with the first branch that is no simple type, or that takes it."""
    for branch in union.branches:
        right = is_default(branch, value)
        if right:
            return _problem(branch, value, inside)
        if isinstance(branch, (Record, EnumType, Array, MapType)):
            return f"Avro Java takes {value!r} for {type_name(branch)}, which comes first"
    return None


def _member(one: Field, value: dict[str, Json], inside: set[int]) -> str | None:
    if one.name in value:
        return _problem(one.type, value[one.name], inside)
    if id(one) in inside:
        return f"the default of {one.name!r} holds itself"
    return _problem(one.type, cast(Json, one.default), inside | {id(one)})


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)
