"""The SQL of a topic's view: every row as Avro resolves it into the latest schema.

The decoder writes the rows of a load in the schema that was the latest then. If a file lacks a
field, Parquet gives null, but Avro gives the default. The view knows at which commit the table went
from one schema to the next, and rebuilds rows that were written before:

    CASE WHEN coalesce(`_written`, `_load`) < 7 THEN 'legacy' ELSE `system` END

Rules:

- Pure: a function of the projections (load number, schema) and nothing else.
- A column that no change touched stays a plain attribute, so that pruning and pushdown work.
- A null struct stays null: the defaults of its members apply only inside a struct.
- Spark and Hive read the same text, with the same answer. Hive has no lambdas and no casts to
  structs, lists, and maps: a view with one of these is for Spark alone, until `load compact --all`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hadoop_loader._tables.columns import (
    METADATA_COLUMNS,
    PARTITION_COLUMN,
    WRITTEN_COLUMN,
    StructField,
    column_type,
    ddl,
    quoted,
    table_columns,
)
from hadoop_loader._tables.old_rows import (
    SchemaProjection,
    file_columns,
    row_values,
    schema_fields,
)
from hadoop_loader._tables.old_values import (
    CastValue,
    ConstantValue,
    FirstValue,
    ItemValue,
    ListValue,
    MapValue,
    MemberValue,
    OldValue,
    StoredValue,
    StructValue,
    SymbolValue,
)
from hadoop_loader._tables.sql_literals import sql_literal, string_literal
from headworks.schema import Primitive

_WRITTEN = f"coalesce({quoted(WRITTEN_COLUMN.name)}, {quoted('_load')})"
# Files of releases before topic ids have no life: it was the first, as far as they knew.
_METADATA = {"_topic_life": "coalesce(`_topic_life`, 1) AS `_topic_life`"}
_UUID_PARTS = "".join(f"(.{{{n}}})" for n in (8, 4, 4, 4, 12))


def view_columns(history: Sequence[SchemaProjection]) -> tuple[StructField, ...]:
    """Return the columns that users see: the latest schema's, the metadata, the partition."""
    return (
        *table_columns(history[-1].schema),
        *METADATA_COLUMNS,
        StructField(PARTITION_COLUMN, column_type(Primitive("string")), "day of the event, UTC"),
    )


def view_query(
    table: str, history: Sequence[SchemaProjection], files: Sequence[StructField] | None = None
) -> str:
    """Return the SELECT of the view over `table`, which is a quoted name.

    `files`: the columns of that table, if they are known. Raises IncompatibleError for old rows
    that no view can show.
    """
    files, latest = files or file_columns(history), history[-1].schema
    if len(history) == 1:  # each row is as its load wrote it
        items = [quoted(f.name) for f in schema_fields(latest)]
    else:
        rows = [dict(row_values(projection.schema, latest, files)) for projection in history]
        items = [_column(name, [row[name] for row in rows], history) for name in rows[-1]]
    items += [_METADATA.get(f.name, quoted(f.name)) for f in METADATA_COLUMNS]
    return f"SELECT {', '.join([*items, quoted(PARTITION_COLUMN)])} FROM {table}"


def _column(name: str, values: Sequence[OldValue], history: Sequence[SchemaProjection]) -> str:
    """Return a column, whose values in the rows of each projection are `values`."""
    column = quoted(name)
    expressions = [_Expression().text(value) for value in values]
    if all(expression == column for expression in expressions):
        return column
    cases = []
    for i, expression in enumerate(expressions[:-1]):
        if expression != expressions[i + 1]:
            value = values[i]
            null = isinstance(value, ConstantValue) and value.value is None
            shown = "NULL" if null else expression  # the last expression gives the type
            cases.append(f"WHEN {_WRITTEN} < {history[i + 1].load} THEN {shown}")
    if not cases:
        return f"{expressions[-1]} AS {column}"
    return f"CASE {' '.join(cases)} ELSE {expressions[-1]} END AS {column}"


class _Expression:
    """Writes one value as SQL."""

    def __init__(self) -> None:
        self._names = 0  # lambda variables given out so far
        self._item = ""  # the variable of the innermost lambda

    def text(self, value: OldValue) -> str:
        """Return the SQL of a value."""
        if isinstance(value, StoredValue):
            return quoted(value.name)
        if isinstance(value, ItemValue):
            return self._item
        if isinstance(value, MemberValue):
            return f"{self.text(value.of)}.{quoted(value.name)}"
        if isinstance(value, ConstantValue):
            return sql_literal(value.value, value.type)
        if isinstance(value, FirstValue):
            return f"coalesce({self.text(value.first)}, {self.text(value.second)})"
        if isinstance(value, StructValue):
            return self._struct(value)
        if isinstance(value, (ListValue, MapValue)):
            return self._items(value)
        at = self.text(value.of)
        if isinstance(value, SymbolValue):
            listed = ", ".join(string_literal(symbol) for symbol in value.gone)
            default = string_literal(value.default)
            return f"CASE WHEN {at} IN ({listed}) THEN {default} ELSE {at} END"
        return _cast(at, value)

    def _struct(self, value: StructValue) -> str:
        at = self.text(value.of)
        built = ", ".join(
            f"{string_literal(name)}, {self.text(member)}" for name, member in value.members
        )
        return f"CASE WHEN {at} IS NOT NULL THEN named_struct({built}) END"

    def _items(self, value: ListValue | MapValue) -> str:
        at, outer = self.text(value.of), self._item
        self._names += 1
        self._item = item = f"x{self._names}"
        changed = self.text(value.item)
        self._item = outer
        if isinstance(value, ListValue):
            return f"transform({at}, {item} -> {changed})"
        return f"transform_values({at}, (k{item}, {item}) -> {changed})"


def _cast(at: str, value: CastValue) -> str:
    """Return a value in another type that files can have, too (see `widening`)."""
    if value.how == "float":
        return f"CAST(CAST({at} AS float) AS double)"
    if value.how == "uuid_text":
        return (
            f"regexp_replace(lower(hex(CAST({at} AS binary))), '{_UUID_PARTS}', '$1-$2-$3-$4-$5')"
        )
    if value.how == "uuid_bytes":
        return f"unhex(replace(CAST({at} AS string), '-', ''))"
    return f"CAST({at} AS {ddl(value.type)})"
