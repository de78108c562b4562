"""Column values as typed SQL literals, safe for any text, with the same meaning in Spark and Hive.

Hive casts to no struct, list, or map. So only an empty list or map, and a null of such a type, is
written with a cast, which Spark alone reads.
"""

from __future__ import annotations

import math
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from hadoop_loader._tables.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    StructColumn,
    ddl,
)

_PLAIN = re.compile(r"[A-Za-z0-9 _.,:;/()\[\]{}<>=+*?!@#%&|~^-]*\Z")


def sql_literal(value: Any, type_: ColumnType) -> str:
    """Return `value` (see `defaults`) as an SQL expression of exactly `type_`."""
    if value is None:
        return f"CAST(NULL AS {ddl(type_)})"
    if isinstance(type_, StructColumn):
        members = ", ".join(
            f"{string_literal(f.name)}, {sql_literal(value[f.name], f.type)}" for f in type_.fields
        )
        return f"named_struct({members})"
    if isinstance(type_, ListColumn):
        items = ", ".join(sql_literal(item, type_.item) for item in value)
        return f"array({items})" if value else f"CAST(array() AS {ddl(type_)})"
    if isinstance(type_, MapColumn):
        entries = ", ".join(
            f"{string_literal(k)}, {sql_literal(v, type_.value)}" for k, v in value.items()
        )
        return f"map({entries})" if value else f"CAST(map() AS {ddl(type_)})"
    if isinstance(type_, DecimalColumn):
        return f"CAST('{value:f}' AS {ddl(type_)})"
    if type_ == BOOLEAN:
        return "true" if value else "false"
    if type_ in (INT, BIGINT):
        return f"CAST('{value}' AS {ddl(type_)})"
    if type_ == DOUBLE:
        return f"CAST('{_double(value)}' AS double)"
    if type_ == DATE:
        return _date(value)
    if type_ == TIMESTAMP:
        # Both take a decimal as seconds, whatever the time zone of the session.
        seconds = Decimal(value).scaleb(-6)
        return f"CAST(CAST('{seconds:f}' AS decimal(20,6)) AS timestamp)"
    return f"unhex('{value.hex()}')" if type_ == BINARY else string_literal(value)


def string_literal(value: str) -> str:
    """Return a string literal; any but plain characters are written as bytes."""
    if _PLAIN.match(value):
        return f"'{value}'"
    return f"CAST(unhex('{value.encode().hex()}') AS string)"


def _date(days: int) -> str:
    """Return days since 1970 as a date; only Spark has those outside the years 1 to 9999."""
    try:
        return f"CAST('{(date(1970, 1, 1) + timedelta(days)).isoformat()}' AS date)"
    except OverflowError:
        return f"date_from_unix_date({days})"


def _double(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
