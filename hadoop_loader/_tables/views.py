"""The SQL of a topic's view: every row as Avro resolves it into the latest schema.

The decoder writes the rows of a load in the schema that was the latest then. If a file lacks a
field, Parquet gives null, but Avro gives the default. The view knows from the commits at which load
the table went from one schema to the next, and rebuilds old rows:

    CASE WHEN _load < 7 THEN 'legacy' ELSE reporting_system END

Rules:

- Pure: a function of the projections (load number, schema) and nothing else.
- A column that no change touched stays a plain attribute, so that pruning and pushdown work.
- A null struct stays null: the defaults of its members apply only inside a struct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from hadoop_loader._tables.columns import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    EMPTY_FIELD,
    INT,
    METADATA_COLUMNS,
    PARTITION_COLUMN,
    STRING,
    TIMESTAMP,
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    StructColumn,
    StructField,
    column_type,
    ddl,
    quoted,
    table_columns,
)
from hadoop_loader._tables.defaults import column_default, union_names
from hadoop_loader._tables.sql_literals import sql_literal, string_literal
from hadoop_loader._tables.widening import widen
from headworks._decoding.resolution import resolve_branch, source_field
from headworks.compatibility import check_pair
from headworks.compatibility._wording import type_name
from headworks.errors import IncompatibleError
from headworks.schema import (
    Array,
    EnumType,
    Field,
    Fixed,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
)

__all__ = ["SchemaProjection", "file_columns", "rebuild_query", "view_columns", "view_query"]


_CASTS = {
    (INT, BIGINT),
    (INT, DOUBLE),
    (BIGINT, DOUBLE),
    (STRING, BINARY),
    (BINARY, STRING),
}


_FIX_NEW_FIELD = (
    "add a field of the new type beside the old one, or give the new events a new topic"
)


@dataclass(frozen=True, slots=True)
class SchemaProjection:
    """From load number `load` on, rows are written in `schema`, version `version`."""

    load: int
    version: int
    schema: Schema


def file_columns(history: Sequence[SchemaProjection]) -> tuple[StructField, ...]:
    """Return the data columns of the table over files: all that any load has written or will write.

    Raises IncompatibleError if files of an earlier projection cannot be read as the latest.
    """
    each = [table_columns(projection.schema) for projection in history]
    return reduce(widen, each[1:], each[0])


def view_columns(history: Sequence[SchemaProjection]) -> tuple[StructField, ...]:
    """Return the columns that users see: the latest schema's, the metadata, the partition."""
    return (
        *table_columns(history[-1].schema),
        *METADATA_COLUMNS,
        StructField(PARTITION_COLUMN, column_type(Primitive("string")), "day of the event, UTC"),
    )


def view_query(table: str, history: Sequence[SchemaProjection]) -> str:
    """Return the SELECT of the view over `table`, which is a quoted name."""
    stored = {f.name.lower(): f.type for f in file_columns(history)}
    latest = history[-1].schema
    items = [_column(f, stored, history, latest) for f in _fields(latest)]
    items += [quoted(f.name) for f in METADATA_COLUMNS]
    return f"SELECT {', '.join([*items, quoted(PARTITION_COLUMN)])} FROM {table}"


def rebuild_query(table: str, history: Sequence[SchemaProjection], new: SchemaProjection) -> str:
    """Return the SELECT of all rows of `table` in the columns of `new`.

    The files of `table` are of `history`. Raises IncompatibleError for a value that Avro would not
    resolve, or not into the same value.
    """
    for projection in history:
        _check_resolves(projection, new)
    stored = {f.name.lower(): f.type for f in file_columns(history)}
    items = [_column(f, stored, history, new.schema) for f in _fields(new.schema)]
    return f"SELECT {', '.join([*items, *(quoted(f.name) for f in METADATA_COLUMNS)])} FROM {table}"


def _fields(schema: Schema) -> tuple[Field, ...]:
    return schema.fields if isinstance(schema, Record) else (Field("value", schema),)


def _check_resolves(old: SchemaProjection, new: SchemaProjection) -> None:
    found = check_pair(new.schema, old.schema)
    if found:
        raise IncompatibleError(
            f"rows of version {old.version} cannot be read as version {new.version}: "
            f"{found[0].message}",
            fix="give the new events a new topic",
        )


def _column(
    f: Field, stored: dict[str, ColumnType], history: Sequence[SchemaProjection], latest: Schema
) -> str:
    name = quoted(f.name)
    expressions = [_column_expression(p.schema, latest, f, stored) for p in history]
    if all(expression == name for expression in expressions):
        return name
    cases = []
    for i, expression in enumerate(expressions[:-1]):
        if expression != expressions[i + 1]:
            cases.append(f"WHEN _load < {history[i + 1].load} THEN {expression}")
    if not cases:
        return f"{expressions[-1]} AS {name}"
    return f"CASE {' '.join(cases)} ELSE {expressions[-1]} END AS {name}"


def _column_expression(old: Schema, new: Schema, f: Field, stored: dict[str, ColumnType]) -> str:
    """Return the expression of a column of `new` for rows written in `old`."""
    if not isinstance(old, Record) or not isinstance(new, Record):
        return _ValueConversion().value(quoted("value"), stored["value"], old, f.type)
    source = source_field(old, new, f)
    if source is None:
        return _default_literal(f)
    type_ = stored[source.name.lower()]
    return _ValueConversion().value(quoted(source.name), type_, source.type, f.type)


def _default_literal(f: Field) -> str:
    return sql_literal(column_default(f) if f.has_default else None, column_type(f.type))


class _ValueConversion:
    """Writes the expression that turns a stored value of an old schema into one of the new.

    In its methods, `at` is the expression of the stored value, and `stored` its type in the table.
    """

    def __init__(self) -> None:
        self._names = 0  # lambda variables given out so far

    def value(self, at: str, stored: ColumnType, old: Schema, new: Schema) -> str:
        target = column_type(new)
        if (
            isinstance(target, StructColumn)
            and isinstance(stored, StructColumn)
            and target.of == stored.of
        ):
            return self._struct(at, stored, old, new, target)
        if isinstance(target, StructColumn) and isinstance(new, Union):
            return self._wrapped(at, stored, old, new, target)
        old, new = _value_type(old), _value_type(new)
        if isinstance(new, Array) and isinstance(old, Array) and isinstance(stored, ListColumn):
            name = self._name()
            item = self.value(name, stored.item, old.items, new.items)
            return at if item == name else f"transform({at}, {name} -> {item})"
        if isinstance(new, MapType) and isinstance(old, MapType) and isinstance(stored, MapColumn):
            key, name = self._name(), self._name()
            item = self.value(name, stored.value, old.values, new.values)
            return at if item == name else f"transform_values({at}, ({key}, {name}) -> {item})"
        if isinstance(new, EnumType) and isinstance(old, EnumType):
            return _enum_symbol(at, old, new)
        if new.kind == "float" and old.kind in ("int", "long"):
            return f"CAST(CAST({at} AS float) AS double)"
        if _text_form(old) != _text_form(new):
            return _convert_text(at, old, new)
        return at if stored == target else _cast(at, stored, target, old, new)

    def _wrapped(
        self, at: str, stored: ColumnType, old: Schema, new: Union, target: StructColumn
    ) -> str:
        """Return the struct of a union of several types, from a value of one type."""
        value = _value_type(old)
        to = resolve_branch(value, new)
        names = union_names(new) or {}
        # A column of [int, long] does not know the branch of a number.
        merged = isinstance(old, Union) and len(_value_branches(old)) > 1
        if merged or to is None or to not in names:
            raise _changed_value_error(at, stored, target)
        inside = self.value(at, stored, value, new.branches[to])
        members = {
            name: sql_literal(None, column_type(new.branches[i])) for i, name in names.items()
        }
        members[names[to]] = inside
        built = ", ".join(f"{string_literal(f.name)}, {members[f.name]}" for f in target.fields)
        return (
            f"CASE WHEN {at} IS NULL THEN CAST(NULL AS {ddl(target)}) "
            f"ELSE named_struct({built}) END"
        )

    def _struct(
        self, at: str, stored: StructColumn, old: Schema, new: Schema, target: StructColumn
    ) -> str:
        members = self._members(at, stored, old, new)
        if stored == target and all(members[f.name] == _member(at, f.name) for f in target.fields):
            return at
        built = ", ".join(f"{string_literal(f.name)}, {members[f.name]}" for f in target.fields)
        return (
            f"CASE WHEN {at} IS NULL THEN CAST(NULL AS {ddl(target)}) "
            f"ELSE named_struct({built}) END"
        )

    def _members(self, at: str, stored: StructColumn, old: Schema, new: Schema) -> dict[str, str]:
        """Return each member of the new struct as an expression over the stored one."""
        names = union_names(new) if isinstance(new, Union) else None
        if isinstance(new, Union) and names is not None:
            return self._branches(at, stored, old, new, names)
        old, new = _value_type(old), _value_type(new)
        if not isinstance(new, Record) or not isinstance(old, Record):  # an Avro duration
            return {f.name: _member(at, f.name) for f in stored.fields}
        if not new.fields:
            return {EMPTY_FIELD: "true"}
        members = {}
        for f in new.fields:
            source = source_field(old, new, f)
            if source is None:
                members[f.name] = _default_literal(f)
                continue
            inside = next(s for s in stored.fields if s.name.lower() == source.name.lower())
            members[f.name] = self.value(_member(at, inside.name), inside.type, source.type, f.type)
        return members

    def _branches(
        self, at: str, stored: StructColumn, old: Schema, new: Union, names: dict[int, str]
    ) -> dict[str, str]:
        before = union_names(old) if isinstance(old, Union) else None
        members = {
            name: sql_literal(None, column_type(new.branches[i])) for i, name in names.items()
        }
        if not isinstance(old, Union) or before is None:
            return members
        for i, name in before.items():
            to = resolve_branch(old.branches[i], new)
            inside = stored.field(name)
            if to is None or to not in names or inside is None:
                continue
            value = self.value(_member(at, name), inside.type, old.branches[i], new.branches[to])
            members[names[to]] = (
                value
                if members[names[to]].startswith("CAST(NULL")
                else f"coalesce({members[names[to]]}, {value})"
            )
        return members

    def _name(self) -> str:
        self._names += 1
        return f"x{self._names}"


def _cast(at: str, stored: ColumnType, target: ColumnType, old: Schema, new: Schema) -> str:
    """Return a value of one type as Avro reads it in another.

    Raises IncompatibleError if that would be another value. A logical type that is added or removed
    leaves the number as it was.
    """
    before, after = _timestamp_unit(old), _timestamp_unit(new)
    if target == TIMESTAMP and stored in (INT, BIGINT) and before is None:
        return f"timestamp_{after}({at})"
    if stored == TIMESTAMP and target == BIGINT and after is None:
        return f"unix_{before}({at})"
    if (stored, target) == (INT, DATE):
        return f"date_from_unix_date({at})"
    if (stored, target) == (DATE, INT):
        return f"unix_date({at})"
    same_scale = (
        isinstance(stored, DecimalColumn)
        and isinstance(target, DecimalColumn)
        and stored.scale == target.scale
        and stored.precision <= target.precision
    )
    if same_scale or (stored, target) in _CASTS:
        return f"CAST({at} AS {ddl(target)})"
    raise _changed_value_error(at, stored, target)


def _text_form(schema: Schema) -> str | None:
    """Return the text form of a column whose Avro type is bytes: a UUID, or a wide decimal."""
    logical = getattr(schema, "logical", None)
    if logical is None or schema.kind == "string" or column_type(schema) != STRING:
        return None
    return f"decimal of scale {logical.scale}" if logical.name == "decimal" else "uuid"


def _convert_text(at: str, old: Schema, new: Schema) -> str:
    """Return bytes as the text of a UUID, or the reverse; a wide decimal does not convert."""
    if isinstance(old, Fixed) and isinstance(new, Fixed) and old.size == new.size == 16:
        if (_text_form(old), _text_form(new)) == (None, "uuid"):
            parts = "".join(f"(.{{{n}}})" for n in (8, 4, 4, 4, 12))
            return f"regexp_replace(lower(hex(CAST({at} AS binary))), '{parts}', '$1-$2-$3-$4-$5')"
        if (_text_form(old), _text_form(new)) == ("uuid", None):
            return f"unhex(replace(CAST({at} AS string), '-', ''))"
    raise IncompatibleError(
        f"column {at} is {type_name(old)} in rows of an earlier version, which the table keeps as "
        f"{ddl(column_type(old))}: it cannot be made {type_name(new)}",
        fix=_FIX_NEW_FIELD,
    )


def _timestamp_unit(schema: Schema) -> str | None:
    logical = getattr(schema, "logical", None)
    name = logical.name if logical else ""
    return name.rpartition("-")[2] if "timestamp-" in name else None


def _changed_value_error(at: str, stored: ColumnType, target: ColumnType) -> IncompatibleError:
    return IncompatibleError(
        f"column {at} cannot be made {ddl(target)} from {ddl(stored)} without changing its values",
        fix=_FIX_NEW_FIELD,
    )


def _enum_symbol(at: str, old: EnumType, new: EnumType) -> str:
    gone = [symbol for symbol in old.symbols if symbol not in new.symbols]
    if not gone or new.default is None:
        return at
    listed = ", ".join(string_literal(symbol) for symbol in gone)
    return f"CASE WHEN {at} IN ({listed}) THEN {string_literal(new.default)} ELSE {at} END"


def _value_type(schema: Schema) -> Schema:
    """Return the one value type of a union that became one column; other schemas unchanged."""
    if not isinstance(schema, Union):
        return schema
    values = _value_branches(schema)
    return values[-1] if values else schema.branches[0]


def _value_branches(union: Union) -> list[Schema]:
    return [branch for branch in union.branches if branch.kind != "null"]


def _member(at: str, name: str) -> str:
    return f"{at}.{quoted(name)}"
