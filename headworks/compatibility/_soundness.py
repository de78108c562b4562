"""Data loss that Avro Java calls compatible (policy `strict`).

Pure questions about one pair of types, or about one default; `_resolution` asks them where it
meets them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, cast

from headworks.compatibility._wording import simple_name, type_name
from headworks.schema._defaults import is_default
from headworks.schema._model import (
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
from headworks.schema._quoting import quote

_NUMBERS: Final = ("int", "long", "float", "double")


def aliases_in_use(reader: Schema, writer: Schema) -> Iterator[tuple[Named, Named]]:
    """Yield types of the reader with an alias that another of its types matches as well.

    A reader first renames the writer's types by its aliases: all of them, and twice. So an alias
    that names a type with an alias of its own leads on to that. A type is renamed even if another
    type was meant to take its values because the simple name is the same.
    """
    mine = list(named_types(reader))
    if not any(node.aliases for node in mine):
        return
    theirs = {node.name: node for node in named_types(writer)}
    claims = Counter([node.name for node in mine] + [a for node in mine for a in set(node.aliases)])
    renamed = {node.name: theirs[a] for node in mine for a in node.aliases if a in theirs}
    loose = Counter(
        (node.kind, simple_name(node.name))
        for node in mine
        if node.name not in theirs and node.name not in renamed
    )
    for node in mine:
        for alias in node.aliases:
            other = theirs.get(alias) or renamed.get(alias)
            if other is None or alias == node.name:
                continue
            taken = alias in theirs and (other.kind, simple_name(alias)) in loose
            if claims[alias] > 1 or taken:
                yield node, other


def field_aliases_in_use(reader: Schema, writer: Schema) -> Iterator[tuple[Field, Field]]:
    """Yield fields with an alias that the writer's record has beside the field itself.

    Records that resolution never meets count as well: aliases apply to all of the writer's schema,
    and twice. So an alias that names a field with an alias of its own leads on to that.
    """
    mine = [node for node in named_types(reader) if isinstance(node, Record)]
    if not any(one.aliases for node in mine for one in node.fields):
        return
    theirs = {node.name: node for node in named_types(writer) if isinstance(node, Record)}
    for node in mine:
        for name in dict.fromkeys((node.name, *node.aliases)):
            if name in theirs:
                yield from _aliases_in_use_in(node, theirs[name])


def _aliases_in_use_in(mine: Record, other: Record) -> Iterator[tuple[Field, Field]]:
    known = other.by_name
    aliased = {f.name: f for f in mine.fields if f.aliases}
    for one in aliased.values():
        for alias in one.aliases:
            if alias in known and one.name in known and alias != one.name:
                yield one, known[one.name]
            next_ = aliased.get(alias)
            if next_ is not None and next_ is not one:
                led = (known[a] for a in next_.aliases if a in known and a != next_.name)
                yield from ((one, field) for field in led)


def logical_problem(reader: Primitive | Fixed, writer: Primitive | Fixed) -> tuple[str, str] | None:
    """Return the rule and the reason if a value has another meaning to the reader, or None."""
    mine, other = reader.logical, writer.logical
    if reader.kind == "string" and writer.kind == "bytes":
        return "HW106", "bytes that are not UTF-8 are no string"
    if mine == other:
        return None
    why = f"{type_name(writer)} is taken for {type_name(reader)}"
    if "decimal" in (mine and mine.name, other and other.name):
        return "HW104", why
    if mine is None and other is not None and other.name == "uuid":
        return None
    return "HW105", why


def default_problem(field: Field) -> str | None:
    """Return why the default of `field` cannot be decoded as its type, or None."""
    if isinstance(field.type, Union) and field.default == []:
        return "Avro Java takes no empty list for a union"
    if isinstance(field.type, Primitive) and field.type.kind != "bytes":
        return None  # `_problem` finds nothing in a value that is simple
    return _problem(field)


# A step of the walk: a value of a type (of a field, if it is its default), or the id of a field
# whose default has been walked.
_Step = tuple[Schema, Json, Field | None] | int


def _problem(top: Field) -> str | None:
    """Return the first problem in the default of `top`, and in the defaults that it needs.

    Each type is checked once with each value, without recursion: defaults of defaults may double
    at every step and go as deep as there are records.
    """
    seen: set[tuple[int, int]] = set()
    around: set[int] = set()
    stack: list[_Step] = [(top.type, cast(Json, top.default), top)]
    while stack:
        step = stack.pop()
        if isinstance(step, int):
            around.discard(step)
            continue
        schema, value, origin = step
        if origin is not None:
            if id(origin) in around:
                return f"the default of {origin.name!r} holds itself"
            around.add(id(origin))
            stack.append(id(origin))
        if (id(schema), id(value)) in seen:
            continue
        seen.add((id(schema), id(value)))
        below = _inner_steps(schema, value)
        if isinstance(below, str):
            return below
        stack.extend(reversed(below))
    return None


def _inner_steps(schema: Schema, value: Json) -> str | list[_Step]:
    """Return the problem of the value itself, or the values inside it."""
    if isinstance(schema, Union):
        return _union_step(schema, value)
    if isinstance(schema, EnumType) and value not in schema.symbols:
        return f"{quote(value)} is not a symbol of {schema.name}"
    if isinstance(schema, Fixed) and isinstance(value, str) and len(value) != schema.size:
        return f"{schema.name} has {schema.size} bytes, not {len(value)}"
    if isinstance(schema, (Primitive, Fixed)) and isinstance(value, str):
        return _problem_of_bytes(schema, value) or []
    if isinstance(schema, Array) and isinstance(value, list):
        return [(schema.items, item, None) for item in value]
    if isinstance(schema, MapType) and isinstance(value, dict):
        return [(schema.values, item, None) for item in value.values()]
    if isinstance(schema, Record) and isinstance(value, dict):
        return [
            (one.type, value[one.name], None)
            if one.name in value
            else (one.type, cast(Json, one.default), one)
            for one in schema.fields
        ]
    return []


def _problem_of_bytes(schema: Primitive | Fixed, value: str) -> str | None:
    if schema.kind not in ("bytes", "fixed"):
        return None
    if any(c > "\xff" for c in value):
        return f"{quote(value)} is not a text of bytes"
    is_decimal = schema.logical is not None and schema.logical.name == "decimal"
    return "an empty text is no decimal to Avro Java" if is_decimal and not value else None


def _union_step(union: Union, value: Json) -> str | list[_Step]:
    """Return the step into the branch by which Java encodes a default, or the problem.

    Java takes the first branch that is not a simple type, or that takes the value. Any type of
    numbers takes any number, and cuts it.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    for branch in union.branches:
        if is_default(branch, value):
            return [(branch, value, None)]
        taken = isinstance(branch, (Record, EnumType, Array, MapType))
        if taken or (number and branch.kind in _NUMBERS):
            return f"Avro Java takes {quote(value)} for {type_name(branch)}, which comes first"
    return []
