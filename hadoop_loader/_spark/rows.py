"""Rows of a DataFrame as Avro data: check the columns, and convert the values. Pure.

Rules:

- It reverses `columns`: a table's columns of a schema are accepted here, and also int and bigint
  for a wider number, and a timestamp for a local one. Nothing else is converted.
- A column that the schema lacks is refused, and so is a missing column without a default.
- A value that the schema does not allow is refused, with its column. No number is changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, cast
from uuid import UUID

from hadoop_loader._tables.columns import (
    BIGINT,
    DOUBLE,
    EMPTY_FIELD,
    INT,
    LOCAL_TYPE,
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    StructColumn,
    column_type,
    ddl,
)
from hadoop_loader._tables.defaults import union_names
from headworks._hive_types import MAX_DECIMAL_PRECISION
from headworks.errors import IncompatibleError
from headworks.schema import Array, EnumType, Fixed, MapType, Record, Schema, Union
from headworks.schema._default_fold import DefaultFold
from headworks.schema._model import Json

Convert = Callable[[Any], Any]
_EXACT_CONTEXT = Context(prec=10_000)
_FLOAT_STRUCT = struct.Struct("<f")
_WIDENINGS = {(INT, BIGINT), (INT, DOUBLE), (BIGINT, DOUBLE)}


def check_columns(columns: StructColumn, schema: Record, at: str = "") -> None:
    """Raise IncompatibleError, with the column, unless `columns` fit `schema`."""
    given = {f.name: f for f in columns.fields}
    for f in schema.fields:
        path = f"{at}{f.name}"
        column = given.pop(f.name, None)
        if column is not None:
            _check(column.type, f.type, path)
        elif not f.has_default:
            raise IncompatibleError(
                f"there is no column {path}, and {schema.name} has no default for it",
                fix=f"add it to the DataFrame, as {_spark_type(column_type(f.type))}",
            )
    if given:
        raise IncompatibleError(
            f"{schema.name} has no field {', '.join(at + name for name in given)}",
            fix="drop the column, or register a version of the schema that has it",
        )


def datum_of(schema: Schema) -> Convert:
    """Return a function that converts a value of a row (as Arrow gives it) to a datum of `schema`.

    It raises ValueError, with the column, for a value that the schema does not allow.
    """
    convert = _required(schema)

    def named(value: Any) -> Any:
        try:
            return convert(value)
        except _ValueMismatchError as error:
            raise ValueError(f"column {error.path} is {error.reason}") from None

    return named


class _ValueMismatchError(Exception):
    """A value that the schema does not allow; `path` is its place, and grows on the way out."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def inside(self, at: str) -> _ValueMismatchError:
        """Return the same error, with its path seen from the enclosing value."""
        joint = "." if self.path[:1] not in ("", "[", "{") else ""
        return _ValueMismatchError(self.reason, f"{at}{joint}{self.path}")


def _required(schema: Schema) -> Convert:
    """Return a converter that also accepts null, if the schema does."""
    convert = _value(schema)
    branches = schema.branches if isinstance(schema, Union) else (schema,)
    nullable = any(branch.kind == "null" for branch in branches)

    def required(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if not nullable:
            raise _ValueMismatchError("null, and the schema has no null there")
        return None

    return required


def _value(schema: Schema) -> Convert:
    """Return a converter of values that are not null."""
    if isinstance(schema, Union):
        return _union(schema)
    if isinstance(schema, Record):
        return _record(schema)
    if isinstance(schema, Array):
        item = _at("[]", _required(schema.items))
        return lambda value: [item(v) for v in value]
    if isinstance(schema, MapType):
        inside = _at("{}", _required(schema.values))
        return lambda value: {k: inside(v) for k, v in value}
    if isinstance(schema, EnumType):
        return _symbol(schema)
    logical = getattr(schema, "logical", None)
    name = logical.name if logical else ""
    if name == "duration":
        return _checked(lambda v: struct.pack("<III", v["months"], v["days"], v["millis"]), name)
    if logical is not None and name == "decimal":
        wide = logical.precision > MAX_DECIMAL_PRECISION
        return _number(logical.precision, logical.scale) if wide else _same
    if isinstance(schema, Fixed):
        return _checked(lambda value: UUID(value).bytes, name) if name == "uuid" else _fixed(schema)
    return _float if schema.kind == "float" else _same


def _same(value: Any) -> Any:
    return value


def _at(path: str, convert: Convert) -> Convert:
    def at(value: Any) -> Any:
        try:
            return convert(value)
        except _ValueMismatchError as error:
            raise error.inside(path) from None

    return at


def _checked(convert: Convert, name: str) -> Convert:
    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, struct.error):
            raise _ValueMismatchError(f"{value!r}, which is no {name}") from None

    return checked


def _number(precision: int, scale: int) -> Convert:
    """Return a converter of decimals that are too long for a decimal column, and are text there."""

    def number(value: str) -> Decimal:
        try:
            found = Decimal(value)
            whole = found.scaleb(scale, _EXACT_CONTEXT)
            fits = whole == whole.to_integral_value() and abs(whole) < 10**precision
        except ArithmeticError:
            fits = False
        if not fits:
            raise _ValueMismatchError(f"{value!r}, which is no decimal({precision},{scale})")
        return found

    return number


def _symbol(schema: EnumType) -> Convert:
    symbols = frozenset(schema.symbols)

    def symbol(value: str) -> str:
        if value not in symbols:
            raise _ValueMismatchError(f"{value!r}, which is no symbol of {schema.name}")
        return value

    return symbol


def _fixed(schema: Fixed) -> Convert:
    def fixed(value: bytes) -> bytes:
        if len(value) != schema.size:
            raise _ValueMismatchError(
                f"{len(value)} bytes long, and {schema.name} has {schema.size}"
            )
        return value

    return fixed


def _float(value: float) -> float:
    try:
        _FLOAT_STRUCT.pack(value)
    except OverflowError:
        raise _ValueMismatchError(f"{value!r}, which is too large for a float of 32 bits") from None
    return value


def _record(schema: Record) -> Convert:
    members = [(f.name, _at(f.name, _required(f.type))) for f in schema.fields]
    # A missing column leaves its field at the default.
    defaults = {f.name: _DatumDefault().field(f) for f in schema.fields if f.has_default}

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: member(row[name]) if name in row else defaults[name] for name, member in members
        }

    return convert


class _DatumDefault(DefaultFold):
    """Turns defaults into data without logical types, as fastavro expects them."""

    def leaf(self, schema: Schema, value: Json) -> Any:
        is_text = isinstance(value, str) and schema.kind in ("bytes", "fixed")
        return cast(str, value).encode("latin-1") if is_text else value

    def union(self, schema: Union, branch: int, value: Any) -> Any:
        return None if value is None else (_branch_name(schema.branches[branch]), value)


def _union(schema: Union) -> Convert:
    names = union_names(schema)
    if names is None:
        only = _single_branch(schema)
        return _same if only is schema else _value(only)  # itself: null alone
    branches = {
        member: (_branch_name(schema.branches[i]), _at(member, _value(schema.branches[i])))
        for i, member in names.items()
    }

    def convert(value: Mapping[str, Any]) -> Any:
        found = [(name, v) for name, v in value.items() if v is not None]
        if len(found) != 1:
            raise _ValueMismatchError(
                f"a struct with {len(found)} members set, and a union has one value"
            )
        name, inside = branches[found[0][0]]
        return (name, inside(found[0][1]))

    return convert


def _branch_name(schema: Schema) -> str:
    return str(getattr(schema, "name", schema.kind))


def _check(given: ColumnType, schema: Schema, path: str) -> None:
    wanted = column_type(schema)
    value = _single_branch(schema)
    if isinstance(given, StructColumn) and isinstance(value, Record):
        if value.fields:
            check_columns(given, value, f"{path}.")
        elif [f.name for f in given.fields] != [EMPTY_FIELD]:
            raise _type_mismatch(path, given, wanted)
    elif isinstance(given, ListColumn) and isinstance(value, Array):
        _check(given.item, value.items, f"{path}[]")
    elif isinstance(given, MapColumn) and isinstance(value, MapType):
        _check(given.value, value.values, f"{path}{{}}")
    elif _spark_type(given) not in (_spark_type(wanted), ddl(wanted)) and (
        (given, wanted) not in _WIDENINGS
    ):
        same_scale = (
            isinstance(given, DecimalColumn)
            and isinstance(wanted, DecimalColumn)
            and given.scale == wanted.scale
            and given.precision <= wanted.precision
        )
        if not same_scale:
            raise _type_mismatch(path, given, wanted)


def _single_branch(schema: Schema) -> Schema:
    """Return the only type of a union that is one column, or the schema itself."""
    if not isinstance(schema, Union) or union_names(schema) is not None:
        return schema
    values = [b for b in schema.branches if b.kind != "null"]
    return values[-1] if values else schema


def _spark_type(type_: ColumnType) -> str:
    """Return a type as a DataFrame has it, without its comments."""
    return ddl(type_, LOCAL_TYPE)


def _type_mismatch(path: str, given: ColumnType, wanted: ColumnType) -> IncompatibleError:
    type_ = _spark_type(wanted)
    return IncompatibleError(
        f"column {path} is {_spark_type(given)}, and the schema wants {type_}",
        fix=f'cast it: df.withColumn("{path}", col("{path}").cast("{type_}"))',
    )
