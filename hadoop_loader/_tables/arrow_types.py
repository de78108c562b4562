"""Column types as Arrow types; the types in Parquet files follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from hadoop_loader._tables.columns import (
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructField,
)

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
_LOCAL = pa.timestamp("us")


def arrow_type(type_: ColumnType) -> Any:
    """Return the Arrow type of a column."""
    if isinstance(type_, ScalarColumn):
        return _LOCAL if type_.local else _ARROW[type_.name]
    if isinstance(type_, DecimalColumn):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, ListColumn):
        return pa.list_(arrow_type(type_.item))
    if isinstance(type_, MapColumn):
        return pa.map_(pa.string(), arrow_type(type_.value))
    return pa.struct([(f.name, arrow_type(f.type)) for f in type_.fields])


def arrow_schema(columns: Sequence[StructField], ids: Mapping[str, int]) -> pa.Schema:
    """Return the Arrow schema of columns; a path in `ids` (see `field_ids`) has its Parquet id."""
    return pa.schema([_field(c.name, c.type, ids, c.name) for c in columns])


def _field(name: str, type_: ColumnType, ids: Mapping[str, int], path: str) -> Any:
    number = ids.get(path)
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(name, _type_with_ids(type_, ids, path), metadata=metadata)


def _type_with_ids(type_: ColumnType, ids: Mapping[str, int], path: str) -> Any:
    if isinstance(type_, ListColumn):
        return pa.list_(_field("element", type_.item, ids, f"{path}[]"))
    if isinstance(type_, MapColumn):
        key = _field("key", ScalarColumn("string"), ids, f"{path}{{key}}").with_nullable(False)
        return pa.map_(key, _field("value", type_.value, ids, f"{path}{{}}"))
    if isinstance(type_, (ScalarColumn, DecimalColumn)):
        return arrow_type(type_)
    return pa.struct([_field(f.name, f.type, ids, f"{path}.{f.name}") for f in type_.fields])
