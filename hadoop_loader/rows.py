"""Rows of a DataFrame as data of an Avro schema: do the columns fit, and the values of a row.

Rules:

- Pure, the way back of `columns`: what a table shows of a schema is what is taken here, with int
  and bigint where the schema has a wider number. Nothing else is converted.
- A column that the schema lacks is refused, as is a missing one without default.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Decimal as Number
from typing import Any
from uuid import UUID

from hadoop_loader.columns import (
    BIGINT,
    DOUBLE,
    EMPTY_FIELD,
    INT,
    MAX_DECIMAL_PRECISION,
    ColumnType,
    Decimal,
    ListOf,
    MapOf,
    Struct,
    StructField,
    column_type,
    ddl,
)
from hadoop_loader.values import union_names
from headworks.errors import IncompatibleError
from headworks.schema import Array, MapType, Record, Schema, Union

__all__ = ["check_columns", "datum_of"]

Convert = Callable[[Any], Any]
_WIDER = {(INT, BIGINT), (INT, DOUBLE), (BIGINT, DOUBLE)}


def check_columns(columns: Struct, schema: Record, at: str = "") -> None:
    """Raise IncompatibleError, naming the column, unless `columns` fit `schema`."""
    given = {f.name: f for f in columns.fields}
    for f in schema.fields:
        path = f"{at}{f.name}"
        column = given.pop(f.name, None)
        if column is not None:
            _check(column.type, f.type, path)
        elif not f.has_default:
            raise IncompatibleError(
                f"there is no column {path}, and {schema.name} has no default for it",
                fix=f"add it to the DataFrame, as {ddl(column_type(f.type))}",
            )
    if given:
        raise IncompatibleError(
            f"{schema.name} has no field {', '.join(at + name for name in given)}",
            fix="drop the column, or register a version of the schema that has it",
        )


def datum_of(schema: Schema) -> Convert:
    """What turns a value of a row (as Arrow gives it to Python) into a datum of `schema`."""
    if isinstance(schema, Record):
        return _record(schema)
    if isinstance(schema, Array):
        item = datum_of(schema.items)
        return lambda value: [item(v) for v in value]
    if isinstance(schema, MapType):
        inside = datum_of(schema.values)
        return lambda value: {k: inside(v) for k, v in value}
    if isinstance(schema, Union):
        return _union(schema)
    logical = getattr(schema, "logical", None)
    if logical is None:
        return _same
    if logical.name == "duration":
        return lambda v: struct.pack("<III", v["months"], v["days"], v["millis"])
    if logical.name == "decimal" and logical.precision > MAX_DECIMAL_PRECISION:
        return Number
    if logical.name == "uuid" and schema.kind == "fixed":
        return lambda value: UUID(value).bytes
    return _same


def _same(value: Any) -> Any:
    return value


def _record(schema: Record) -> Convert:
    members = [(f.name, datum_of(f.type)) for f in schema.fields]

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        # A column that is not there leaves its field to the default.
        return {name: member(row[name]) for name, member in members if name in row}

    return convert


def _union(schema: Union) -> Convert:
    names = union_names(schema)
    if names is None:
        values = [datum_of(b) for b in schema.branches if b.kind != "null"]
        only = values[-1] if values else _same
        return lambda value: None if value is None else only(value)
    branches = {
        member: (_branch_name(schema.branches[i]), datum_of(schema.branches[i]))
        for i, member in names.items()
    }

    def convert(value: Mapping[str, Any] | None) -> Any:
        if value is None:
            return None
        found = [(name, v) for name, v in value.items() if v is not None]
        if len(found) != 1:
            raise ValueError(f"{len(found)} members are set, and a union has one value")
        name, inside = branches[found[0][0]]
        return (name, inside(found[0][1]))

    return convert


def _branch_name(schema: Schema) -> str:
    return str(getattr(schema, "name", schema.kind))


def _check(given: ColumnType, schema: Schema, path: str) -> None:
    wanted = column_type(schema)
    value = _only(schema)
    if isinstance(given, Struct) and isinstance(value, Record):
        if value.fields:
            check_columns(given, value, f"{path}.")
        elif [f.name for f in given.fields] != [EMPTY_FIELD]:
            raise _unlike(path, given, wanted)
    elif isinstance(given, ListOf) and isinstance(value, Array):
        _check(given.item, value.items, f"{path}[]")
    elif isinstance(given, MapOf) and isinstance(value, MapType):
        _check(given.value, value.values, f"{path}{{}}")
    elif _bare(given) != _bare(wanted) and (given, wanted) not in _WIDER:
        same_scale = (
            isinstance(given, Decimal)
            and isinstance(wanted, Decimal)
            and given.scale == wanted.scale
            and given.precision <= wanted.precision
        )
        if not same_scale:
            raise _unlike(path, given, wanted)


def _only(schema: Schema) -> Schema:
    """The one value type of a union that is one column; other schemas as they are."""
    if not isinstance(schema, Union) or union_names(schema) is not None:
        return schema
    values = [b for b in schema.branches if b.kind != "null"]
    return values[-1] if values else schema


def _bare(type_: ColumnType) -> ColumnType:
    """A type without comments."""
    if isinstance(type_, Struct):
        return Struct(tuple(StructField(f.name, _bare(f.type)) for f in type_.fields))
    if isinstance(type_, ListOf):
        return ListOf(_bare(type_.item))
    return MapOf(_bare(type_.value)) if isinstance(type_, MapOf) else type_


def _unlike(path: str, given: ColumnType, wanted: ColumnType) -> IncompatibleError:
    return IncompatibleError(
        f"column {path} is {ddl(given)}, and the schema wants {ddl(wanted)}",
        fix=f'cast it: df.withColumn("{path}", col("{path}").cast("{ddl(wanted)}"))',
    )
