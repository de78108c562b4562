"""How a table's columns follow a topic's schema, and which changes Parquet cannot follow.

Rules (measured with Spark 4.3's native Parquet reader; files are never rewritten):

- Columns and members are matched by name. A new one is added, and a dropped one stays in the table,
  where the view hides it. The order is the latest schema's.
- A type may go from int to bigint or double, and between string and binary. A decimal may gain
  precision. Every other change is refused: the table would read old files wrongly, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from hadoop_loader._tables.columns import (
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructColumn,
    StructField,
    ddl,
)
from headworks._hive_types import READABLE_AS, decimal_readable_as
from headworks.errors import IncompatibleError

_READABLE = {(ScalarColumn(was), ScalarColumn(now)) for was, now in READABLE_AS}


def widen(
    table: Sequence[StructField], new: Sequence[StructField], at: str = ""
) -> tuple[StructField, ...]:
    """Return columns that hold what `table` held and what `new` needs; `at` is the path so far.

    Raises IncompatibleError, naming the column, for a change that old files cannot follow.
    """
    old = {f.name.lower(): f for f in table}
    columns = []
    for f in new:
        before = old.pop(f.name.lower(), None)
        path = f"{at}.{f.name}" if at else f.name
        columns.append(f if before is None else _field(before, f, path))
    return (*columns, *old.values())


def _field(before: StructField, after: StructField, path: str) -> StructField:
    return StructField(after.name, _type(before.type, after.type, path), after.comment)


def _type(before: ColumnType, after: ColumnType, path: str) -> ColumnType:
    if (
        isinstance(before, StructColumn)
        and isinstance(after, StructColumn)
        and before.of == after.of
    ):
        return StructColumn(widen(before.fields, after.fields, path), after.of)
    if isinstance(before, ListColumn) and isinstance(after, ListColumn):
        return ListColumn(_type(before.item, after.item, f"{path}[]"))
    if isinstance(before, MapColumn) and isinstance(after, MapColumn):
        return MapColumn(_type(before.value, after.value, f"{path}{{}}"))
    if before == after or (before, after) in _READABLE or _gains_precision(before, after):
        return after
    raise IncompatibleError(
        f"column {path} cannot change from {ddl(before)} to {ddl(after)}: "
        "the Parquet files already written would not be read back"
    )


def _gains_precision(before: ColumnType, after: ColumnType) -> bool:
    return (
        isinstance(before, DecimalColumn)
        and isinstance(after, DecimalColumn)
        and decimal_readable_as((before.precision, before.scale), (after.precision, after.scale))
    )
