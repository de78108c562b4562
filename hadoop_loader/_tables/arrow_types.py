"""Column types as Arrow types; the types in Parquet files follow from them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from hadoop_loader._tables.columns import (
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    ScalarColumn,
)

__all__ = ["arrow_type"]

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_type(type_: ColumnType) -> Any:
    """Return the Arrow type of a column."""
    if isinstance(type_, ScalarColumn):
        return _ARROW[type_.name]
    if isinstance(type_, DecimalColumn):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, ListColumn):
        return pa.list_(arrow_type(type_.item))
    if isinstance(type_, MapColumn):
        return pa.map_(pa.string(), arrow_type(type_.value))
    return pa.struct([(f.name, arrow_type(f.type)) for f in type_.fields])
