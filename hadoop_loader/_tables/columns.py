"""Avro types to table columns, from which the DDL, Arrow, and Parquet types follow.

The gate uses it as well: a pull request shows the table that a change will make.

Rules:

- Pure: schema nodes in, column types out. docs/hadoop_loader.md has the mapping as a table.
- The mapping is stable under evolution. Avro float is stored as double, so a promotion from int
  over float to double never makes a file's type unreadable to Parquet.
- Types that no table can hold (recursion, names that differ only in case) raise SchemaError.
- The types of columns are in `headworks/_hive_types.py`, where the gate takes them as well.
- It imports no package of Arrow or Spark: the Arrow types are in `arrow_types`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headworks._hive_types import LOGICAL_TYPES, MAX_DECIMAL_PRECISION, PRIMITIVE_TYPES
from headworks.errors import SchemaError
from headworks.schema import Array, EnumType, Fixed, MapType, Primitive, Record, Schema, Union
from headworks.schema._model import Named, inner_types

PARTITION_COLUMN = "datepartition"
# The property of a table over files with the column that the partitions come from.
PARTITION_TIME = "headworks.partition_time"
ROW_COUNT = "numRows"  # the property, by Hive's name
MARKS_TABLE = "headworks_completeness"  # up to which time each table is complete
EMPTY_FIELD = "_present"
MAX_COLUMNS = 50_000
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class ScalarColumn:
    """A column of one value; `name` is the Hive type.

    `local`: a timestamp of a wall clock, in no time zone. Hive has no type of its own for it.
    """

    name: str
    local: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class DecimalColumn:
    """A decimal(precision, scale)."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class StructField:
    """A named member of a struct, or a column of a table; `comment` is the Avro doc."""

    name: str
    type: ColumnType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class StructColumn:
    """A struct with named members; `of` says what it stands for (record, union, duration).

    The members of a record are its fields, and those of a union are its types. A table never mixes
    the two in one column, although Hive would see nothing but more members.
    """

    fields: tuple[StructField, ...]
    of: str = "record"

    def field(self, name: str) -> StructField | None:
        """Return the member of that name, or None."""
        return next((f for f in self.fields if f.name == name), None)


@dataclass(frozen=True, slots=True)
class ListColumn:
    """An array."""

    item: ColumnType


@dataclass(frozen=True, slots=True)
class MapColumn:
    """A map from string."""

    value: ColumnType


ColumnType = ScalarColumn | DecimalColumn | StructColumn | ListColumn | MapColumn

BOOLEAN, INT, BIGINT = ScalarColumn("boolean"), ScalarColumn("int"), ScalarColumn("bigint")
DOUBLE, STRING, BINARY = ScalarColumn("double"), ScalarColumn("string"), ScalarColumn("binary")
DATE, TIMESTAMP = ScalarColumn("date"), ScalarColumn("timestamp")
LOCAL_TIMESTAMP = ScalarColumn("timestamp", local=True)
LOCAL_TYPE = "timestamp_ntz"  # of a local timestamp in Spark's DataFrames

# The columns in every table that say where a row came from, and by which schema and load.
METADATA_COLUMNS: tuple[StructField, ...] = (
    StructField("_partition", INT, "partition of the topic"),
    StructField("_offset", BIGINT, "offset in the partition"),
    StructField("_timestamp", TIMESTAMP, "timestamp of the record in the log"),
    StructField("_schema_version", INT, "version of the schema that the event was written with"),
    StructField("_load", BIGINT, "number of the load that brought the row"),
    StructField("_topic_life", INT, "1, and one more when the topic was made again, or moved"),
)
# The same, and a column of the files alone: it says in which of the table's schemas a row is. A
# file of an earlier release lacks it; its rows were written by their load.
WRITTEN_COLUMN = StructField("_written", BIGINT, "number of the commit that wrote the row so")
FILE_COLUMNS: tuple[StructField, ...] = (*METADATA_COLUMNS, WRITTEN_COLUMN)

_PRIMITIVES = {kind: ScalarColumn(name) for kind, name in PRIMITIVE_TYPES.items()}
_LOGICAL = {
    logical: ScalarColumn(name, local=logical.startswith("local-"))
    for logical, name in LOGICAL_TYPES.items()
}
_DURATION = StructColumn(
    tuple(StructField(name, BIGINT) for name in ("months", "days", "millis")), "duration"
)


_LEAF = (1, 1)  # columns, and how deep they are inside each other


def table_name(topic: str) -> str:
    """Return the name of the Hive table of a topic."""
    return re.sub(r"[^a-z0-9_]", "_", topic.lower())


def table_columns(schema: Schema) -> tuple[StructField, ...]:
    """Return the data columns of a topic with this schema, without the metadata columns.

    A schema that is not a record becomes one column `value`. Raises SchemaError if no table can
    hold the schema: recursion, names that differ only in case, or a reserved name.
    """
    _check_size(schema)
    if isinstance(schema, Record):
        columns = tuple(
            StructField(f.name, column_type(f.type, (schema,)), f.doc) for f in schema.fields
        )
    else:
        columns = (StructField("value", column_type(schema)),)
    reserved = {PARTITION_COLUMN, *(column.name for column in FILE_COLUMNS)}
    for column in columns:
        if column.name.lower() in reserved:
            raise SchemaError(
                f"field {column.name!r} has the name of a column that the loader adds",
                rule="reserved-column",
                fix=f"rename the field; reserved are {', '.join(sorted(reserved))}",
            )
    _check_case(columns, schema.pointer)
    return columns


def column_type(schema: Schema, inside: tuple[Schema, ...] = ()) -> ColumnType:
    """Return the column type of an Avro type; `inside` are the records around it."""
    if isinstance(schema, Primitive):
        return _primitive(schema)
    if isinstance(schema, Fixed):
        return _fixed(schema)
    if isinstance(schema, EnumType):
        return STRING
    if isinstance(schema, Array):
        return ListColumn(column_type(schema.items, inside))
    if isinstance(schema, MapType):
        return MapColumn(column_type(schema.values, inside))
    if isinstance(schema, Union):
        return union_type(schema, inside)
    if any(schema is record for record in inside):
        raise SchemaError(
            f"record {schema.name} contains itself, and a table column cannot",
            pointer=schema.pointer,
            rule="recursive-type",
            fix="keep the recursive part as a string or bytes field, or load it as JSON text: set "
            "`recursive_types` to json",
        )
    if not schema.fields:
        return StructColumn((StructField(EMPTY_FIELD, BOOLEAN),))
    fields = tuple(
        StructField(f.name, column_type(f.type, (*inside, schema)), f.doc) for f in schema.fields
    )
    _check_case(fields, schema.pointer)
    return StructColumn(fields)


def union_type(schema: Union, inside: tuple[Schema, ...] = ()) -> ColumnType:
    """Return the one value type of a union if there is one, else a struct of its branches."""
    values = [branch for branch in schema.branches if branch.kind != "null"]
    if not values:
        return STRING
    types = [column_type(branch, inside) for branch in values]
    if len(values) == 1:
        return types[0]
    if all(isinstance(b, Primitive) and b.logical is None for b in values):
        kinds = {branch.kind for branch in values}
        if kinds == {"int", "long"}:
            return BIGINT
        if kinds == {"float", "double"}:
            return DOUBLE
    names = branch_names(values)
    fields = tuple(StructField(name, type_) for name, type_ in zip(names, types, strict=True))
    _check_case(fields, schema.pointer)
    return StructColumn(fields, "union")


def branch_names(branches: list[Schema]) -> list[str]:
    """Return member names for a union's branches: simple names, or full names if they clash."""
    simple = [b.name.rpartition(".")[2] if isinstance(b, Named) else b.kind for b in branches]
    return [
        b.name.replace(".", "_") if isinstance(b, Named) and simple.count(name) > 1 else name
        for b, name in zip(branches, simple, strict=True)
    ]


def ddl(type_: ColumnType, local: str = "timestamp") -> str:
    """Return the type as Spark SQL and Hive write it; `local` is that of a local timestamp."""
    if isinstance(type_, ScalarColumn):
        return local if type_.local else type_.name
    if isinstance(type_, DecimalColumn):
        return f"decimal({type_.precision},{type_.scale})"
    if isinstance(type_, ListColumn):
        return f"array<{ddl(type_.item, local)}>"
    if isinstance(type_, MapColumn):
        return f"map<string,{ddl(type_.value, local)}>"
    return f"struct<{','.join(f'{quoted(f.name)}:{ddl(f.type, local)}' for f in type_.fields)}>"


def quoted(name: str) -> str:
    """Return any name as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def _primitive(schema: Primitive) -> ColumnType:
    logical = schema.logical
    if logical is None:
        return _PRIMITIVES[schema.kind]
    if logical.name == "decimal":
        return _decimal(logical.precision, logical.scale)
    return _LOGICAL.get(logical.name, _PRIMITIVES[schema.kind])


def _fixed(schema: Fixed) -> ColumnType:
    logical = schema.logical
    if logical is None:
        return BINARY
    if logical.name == "decimal":
        return _decimal(logical.precision, logical.scale)
    return _DURATION if logical.name == "duration" else _LOGICAL.get(logical.name, BINARY)


def _decimal(precision: int, scale: int) -> ColumnType:
    return DecimalColumn(precision, scale) if precision <= MAX_DECIMAL_PRECISION else STRING


def _check_size(schema: Schema) -> None:
    """Raise SchemaError for a type that no metastore takes.

    A named type that is used twice is written out twice.
    """
    sizes: dict[int, tuple[int, int]] = {}
    stack: list[tuple[Schema, bool]] = [(schema, False)]
    while stack:
        node, leaving = stack.pop()
        below = inner_types(node)
        if leaving:
            known = [_LEAF if isinstance(one, Primitive) else sizes[id(one)] for one in below]
            size = 1 + sum(size for size, _ in known)
            depth = 1 + max((depth for _, depth in known), default=0)
            if size > MAX_COLUMNS or depth > MAX_DEPTH:
                raise SchemaError(
                    f"a table would need more than {MAX_COLUMNS:,} columns and members, or more "
                    f"than {MAX_DEPTH} inside each other",
                    pointer=schema.pointer,
                    rule="table-size",
                    fix="keep a part of it as a string or bytes field",
                )
            sizes[id(node)] = (size, depth)
        elif id(node) not in sizes:
            # A record met again inside itself is recursive; column_type refuses it.
            sizes[id(node)] = _LEAF
            if below:
                stack.append((node, True))
                stack += [(one, False) for one in below if not isinstance(one, Primitive)]


def _check_case(fields: tuple[StructField, ...], pointer: str) -> None:
    for first, second in _case_collisions(fields):
        raise SchemaError(
            f"names {first!r} and {second!r} differ only in case, and Hive's do not",
            pointer=pointer,
            rule="case-collision",
            fix="rename one of them",
        )


def _case_collisions(fields: tuple[StructField, ...]) -> Iterator[tuple[str, str]]:
    seen: dict[str, str] = {}
    for f in fields:
        if f.name.lower() in seen:
            yield seen[f.name.lower()], f.name
        seen[f.name.lower()] = f.name
