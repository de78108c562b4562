"""Spark's types as column types, for the DataFrames that users write."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types

from hadoop_loader._tables.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LOCAL_TIMESTAMP,
    STRING,
    TIMESTAMP,
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    StructColumn,
    StructField,
)
from headworks.errors import IncompatibleError

_SCALARS: dict[type[Any], ColumnType] = {
    types.BooleanType: BOOLEAN,
    types.ByteType: INT,
    types.ShortType: INT,
    types.IntegerType: INT,
    types.LongType: BIGINT,
    types.FloatType: DOUBLE,
    types.DoubleType: DOUBLE,
    types.StringType: STRING,
    types.BinaryType: BINARY,
    types.DateType: DATE,
    types.TimestampType: TIMESTAMP,
    types.TimestampNTZType: LOCAL_TIMESTAMP,
}


def struct_of(schema: types.StructType) -> StructColumn:
    """Return the columns of a DataFrame; IncompatibleError for a type that no schema has."""
    return StructColumn(
        tuple(StructField(f.name, _type(f.dataType, f.name)) for f in schema.fields)
    )


def _type(given: types.DataType, at: str) -> ColumnType:
    if isinstance(given, types.StructType):
        return struct_of(given)
    if isinstance(given, types.ArrayType):
        return ListColumn(_type(given.elementType, at))
    if isinstance(given, types.MapType) and isinstance(given.keyType, types.StringType):
        return MapColumn(_type(given.valueType, at))
    if isinstance(given, types.DecimalType):
        return DecimalColumn(given.precision, given.scale)
    found = _SCALARS.get(type(given))
    if found is None:
        raise IncompatibleError(
            f"column {at} is {given.simpleString()}, which no Avro type becomes",
            fix="cast it to what the topic's table has: see docs/hadoop_loader.md",
        )
    return found
