"""The Hive type of each Avro type, and which types a table's files are read as.

The gate refuses by these tables, and the loader makes columns by them, so both always agree. Pure:
no schema is read here.
"""

from __future__ import annotations

from typing import Final

# A float is a double: a promotion from int over float to double never changes the type in files.
PRIMITIVE_TYPES: Final = {
    "null": "string",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
LOGICAL_TYPES: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
    "uuid": "string",
}
MAX_DECIMAL_PRECISION: Final = 38
# A type in files, and another that Parquet readers give it as (measured with Spark 4.3's reader).
READABLE_AS: Final = frozenset(
    [("int", "bigint"), ("int", "double"), ("string", "binary"), ("binary", "string")]
)


def decimal_readable_as(was: tuple[int, int], now: tuple[int, int]) -> bool:
    """Whether readers give a decimal of files as another; both are (precision, scale)."""
    return was[1] == now[1] and was[0] <= now[0]
