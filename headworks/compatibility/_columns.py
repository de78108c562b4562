"""The shape of a column for an Avro type, and what a metastore can store of a column.

Rule: the constants are Hive's: `COLUMNS_V2` in the database of its metastore, the embedded one
included. The loader refuses the same columns in its plan.
"""

from __future__ import annotations

from typing import Final

from headworks._hive_types import LOGICAL_TYPES, MAX_DECIMAL_PRECISION, PRIMITIVE_TYPES
from headworks.schema._model import (
    Array,
    EnumType,
    Fixed,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)

MAX_COLUMN_NAME_CHARACTERS: Final = 767
MAX_COLUMN_TYPE_CHARACTERS: Final = 32_672
_DURATION_TEXT: Final = "struct<months:bigint,days:bigint,millis:bigint>"
_NOTHING: Final = Primitive("null")  # the type of a column that an empty union makes
_EMPTY_RECORD_TEXT: Final = "struct<_present:boolean>"


def name_problem(name: str) -> str | None:
    """Return why the metastore cannot store a column of this name, or None."""
    if len(name) <= MAX_COLUMN_NAME_CHARACTERS:
        return None
    return (
        f'the column "{name[:40]}..." has a name of {len(name)} characters, and a metastore takes '
        f"{MAX_COLUMN_NAME_CHARACTERS}"
    )


def type_problem(characters: int) -> str | None:
    """Return why the metastore cannot store a type whose text is so long, or None."""
    if characters <= MAX_COLUMN_TYPE_CHARACTERS:
        return None
    return (
        f"the column's type has a text of {characters:,} characters, and a metastore takes "
        f"{MAX_COLUMN_TYPE_CHARACTERS:,}"
    )


class TypeLengths:
    """The lengths of the texts of column types; no type may hold itself."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}  # by id of the schema

    def of(self, schema: Schema) -> int:
        """Return the characters of a type as the metastore stores it; types wait on a stack."""
        stack: list[tuple[Schema, bool]] = [(schema, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                self._known[id(node)] = self._length(node)
            elif id(node) not in self._known:
                stack.append((node, True))
                stack += [(below, False) for _, below in _members(node)]
        return self._known[id(schema)]

    def _length(self, node: Schema) -> int:
        members = [(name, self._known[id(below)]) for name, below in _members(node)]
        if isinstance(node, Array):
            return len("array<>") + members[0][1]
        if isinstance(node, MapType):
            return len("map<string,>") + members[0][1]
        if isinstance(node, Union) and len(members) == 1:
            return members[0][1]
        if isinstance(node, (Record, Union)):
            if not members:
                return len(_EMPTY_RECORD_TEXT)
            inside = sum(len(name) + len(":,") + length for name, length in members)
            return len("struct<>") + inside - 1
        return len(_scalar_text(node))


def _members(node: Schema) -> list[tuple[str, Schema]]:
    """Return the types inside a column type, with the names that the struct gives them."""
    if isinstance(node, Record):
        return [(one.name, one.type) for one in node.fields]
    if isinstance(node, Array):
        return [("", node.items)]
    if isinstance(node, MapType):
        return [("", node.values)]
    one = one_type(node)
    if isinstance(one, Union):
        return [(_simple_name(branch), branch) for branch in branches(one)]
    return [("", one)] if one is not node else []


def _scalar_text(node: Schema) -> str:
    if _is_duration(node):
        return _DURATION_TEXT
    text = shape(node)
    return "timestamp" if text == "local timestamp" else text


def _is_duration(node: Schema) -> bool:
    return isinstance(node, Fixed) and node.logical is not None and node.logical.name == "duration"


def _simple_name(branch: Schema) -> str:
    if isinstance(branch, (Record, EnumType, Fixed)):
        return branch.name.rpartition(".")[2]
    return branch.kind


def one_type(schema: Schema) -> Schema:
    """Return the type that a column holds: without null, and with the wider of two numbers.

    It is always the same object for a schema, because its callers remember types by their id.
    """
    if not isinstance(schema, Union):
        return schema
    rest = branches(schema)
    if len(rest) == 1:
        return rest[0]
    if not rest:
        return schema.branches[0] if schema.branches else _NOTHING
    kinds = {branch.kind for branch in rest}
    for wide, narrow in (("long", "int"), ("double", "float")):
        if kinds == {wide, narrow}:
            return next(branch for branch in rest if branch.kind == wide)
    return schema


def branches(union: Union) -> list[Schema]:
    return [branch for branch in union.branches if branch.kind != "null"]


def shape(schema: Schema) -> str:
    """Return the column type in a few words; equal columns have equal texts."""
    schema = one_type(schema)
    if isinstance(schema, Record):
        return "struct"
    if isinstance(schema, EnumType):
        return "string"
    if isinstance(schema, Union):
        return f"struct of {len(branches(schema))} types"
    if isinstance(schema, (Array, MapType)):
        return schema.kind
    if _is_duration(schema):
        return "struct of a duration"
    logical = schema.logical
    base = "binary" if isinstance(schema, Fixed) else PRIMITIVE_TYPES[schema.kind]
    if logical is None:
        return base
    if logical.name == "decimal":
        fits = logical.precision <= MAX_DECIMAL_PRECISION
        return f"decimal({logical.precision},{logical.scale})" if fits else "string"
    name = LOGICAL_TYPES.get(logical.name, base)
    # Hive has one type for both timestamps; a reader of the values has not.
    local = name == "timestamp" and logical.name.startswith("local-")
    return f"local {name}" if local else name
