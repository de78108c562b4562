"""Avro defaults as column values: the one place where a JSON default becomes the value in a row.

The decoder appends these values and the views write them as SQL literals. Both take them from
here, so that they agree.

A column value is None, bool, int, float, str, bytes, Decimal, list, or dict. A dict holds a struct
by member name, or a map by key. Dates are days, timestamps microseconds since 1970 UTC.
"""

from __future__ import annotations

import uuid
from decimal import Context, Decimal
from struct import Struct
from typing import Any, cast

from hadoop_loader._tables.columns import (
    EMPTY_FIELD,
    StructColumn,
    branch_names,
    union_type,
)
from headworks._decoding.primitives import BadDatumError
from headworks._hive_types import MAX_DECIMAL_PRECISION
from headworks.errors import SchemaError
from headworks.schema import EnumType, Field, Fixed, Primitive, Record, Schema, Union
from headworks.schema._default_fold import DefaultFold
from headworks.schema._model import Json
from headworks.schema._quoting import quote

_EXACT = Context(prec=10_000)
_MICROS_LIMIT = (2**63 - 1) // 1000
_FLOAT = Struct("<f")
_DURATION = Struct("<III")


def column_default(field: Field) -> Any:
    """Return the column value of a field's default."""
    return _ColumnDefault().field(field)


def union_names(union: Union) -> dict[int, str] | None:
    """Return the struct member of each branch number of a union of several columns.

    None if the union is one column.
    """
    values = [b for b in union.branches if b.kind != "null"]
    if len(values) < 2 or not isinstance(union_type(union), StructColumn):
        return None
    names = iter(branch_names(values))
    return {i: next(names) for i, b in enumerate(union.branches) if b.kind != "null"}


def as_float32(value: float) -> float:
    """Return the nearest float of 32 bits, as Avro's promotion to float gives it."""
    try:
        return cast(float, _FLOAT.unpack(_FLOAT.pack(value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def micros_of_millis(value: int) -> int:
    """Return milliseconds as microseconds; BadDatumError if 64 bits cannot hold them."""
    if not -_MICROS_LIMIT <= value <= _MICROS_LIMIT:
        raise BadDatumError(f"timestamp {value} ms is out of range")
    return value * 1000


def to_decimal(raw: bytes, precision: int, scale: int) -> Decimal:
    """Return the decimal of two's complement, big-endian bytes.

    Raises BadDatumError if it has more than `precision` digits.
    """
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**precision:
        raise BadDatumError(f"decimal has more than {precision} digits")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def decimal_text(raw: bytes, precision: int, scale: int) -> str:
    """Return a decimal that is too wide for Hive as text."""
    return f"{to_decimal(raw, precision, scale):f}"


def duration(raw: bytes) -> dict[str, int]:
    """Return the three members of an Avro duration."""
    months, days, millis = _DURATION.unpack(raw)
    return {"months": months, "days": days, "millis": millis}


class _ColumnDefault(DefaultFold):
    """Turns defaults into column values."""

    def leaf(self, schema: Schema, value: Json) -> Any:
        if isinstance(schema, Primitive):
            return _primitive(schema, value)
        if isinstance(schema, Fixed):
            return _bytes(schema, cast(str, value).encode("latin-1"))
        if isinstance(schema, EnumType):
            return value
        message = f"default {quote(value)} is not a value of type {schema.kind}"
        raise SchemaError(message, pointer=schema.pointer)

    def record(self, schema: Record, members: dict[str, Any]) -> Any:
        return members if schema.fields else {EMPTY_FIELD: True}

    def union(self, schema: Union, branch: int, value: Any) -> Any:
        names = union_names(schema)
        if names is None or value is None:
            return value
        return {name: value if i == branch else None for i, name in names.items()}


def _primitive(schema: Primitive, value: Json) -> Any:
    logical = schema.logical.name if schema.logical else ""
    if schema.kind == "bytes":
        return _bytes(schema, cast(str, value).encode("latin-1"))
    if schema.kind == "float":
        return as_float32(float(cast(float, value)))
    if schema.kind == "double":
        return float(cast(float, value))
    if logical in ("timestamp-millis", "local-timestamp-millis"):
        return micros_of_millis(cast(int, value))
    return value


def _bytes(schema: Primitive | Fixed, raw: bytes) -> Any:
    logical = schema.logical
    if logical is None:
        return raw
    if logical.name == "decimal":
        convert = to_decimal if logical.precision <= MAX_DECIMAL_PRECISION else decimal_text
        return convert(raw, logical.precision, logical.scale)
    if logical.name == "uuid":
        return str(uuid.UUID(bytes=raw))
    return duration(raw)
