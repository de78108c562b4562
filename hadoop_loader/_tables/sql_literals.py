"""Column values as typed Spark SQL literals, safe for any text."""

from __future__ import annotations

import math
import re
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

__all__ = ["sql_literal", "string_literal"]

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
        return f"CAST(array({items}) AS {ddl(type_)})"
    if isinstance(type_, MapColumn):
        entries = ", ".join(
            f"{string_literal(k)}, {sql_literal(v, type_.value)}" for k, v in value.items()
        )
        return f"CAST(map({entries}) AS {ddl(type_)})"
    if isinstance(type_, DecimalColumn):
        return f"CAST('{value:f}' AS {ddl(type_)})"
    if type_ == BOOLEAN:
        return "true" if value else "false"
    if type_ in (INT, BIGINT):
        return f"CAST('{value}' AS {ddl(type_)})"
    if type_ == DOUBLE:
        return f"CAST('{_double(value)}' AS double)"
    if type_ == DATE:
        return f"date_from_unix_date({value})"
    if type_ == TIMESTAMP:
        return f"timestamp_micros(CAST('{value}' AS bigint))"
    return f"X'{value.hex()}'" if type_ == BINARY else string_literal(value)


def string_literal(value: str) -> str:
    """Return a string literal; any but plain characters are written as bytes."""
    if _PLAIN.match(value):
        return f"'{value}'"
    return f"CAST(X'{value.encode().hex()}' AS string)"


def _double(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
