"""How a row that was written in one schema shows in a later one: a small tree for each column.

The view writes these trees as SQL (`views`), and rewrites of files compute them
(`_tasks.latest_rows`). Both take them from here, so that a row reads the same before and after its
file is rewritten.

Rules:

- Pure: schemas in, trees out. The leaves are the columns of the table over files.
- A stored value that needs no change is a plain StoredValue, MemberValue, or ItemValue.
- A missing column is null in a file. So a field that is new, and null by default, is read as it is.
- A value that Avro would resolve into another one raises IncompatibleError, with its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from hadoop_loader._tables.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    EMPTY_FIELD,
    INT,
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
    table_columns,
)
from hadoop_loader._tables.defaults import column_default, union_names
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
from hadoop_loader._tables.widening import widen
from headworks._decoding.resolution import resolve_branch, source_field
from headworks.compatibility import check_pair
from headworks.compatibility._wording import type_name
from headworks.errors import IncompatibleError
from headworks.schema import Array, EnumType, Field, Fixed, MapType, Record, Schema, Union

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


def row_values(
    old: Schema, new: Schema, files: Sequence[StructField]
) -> tuple[tuple[str, OldValue], ...]:
    """Return each column of `new`, by name, for rows that were written in `old`.

    `files`: the data columns of the table over files. Raises IncompatibleError for a value that
    would become another one.
    """
    stored = {f.name.lower(): f for f in files}
    return tuple((f.name, _column(old, new, f, stored)) for f in schema_fields(new))


def schema_fields(schema: Schema) -> tuple[Field, ...]:
    """Return the fields that become columns; a schema that is no record is one field."""
    return schema.fields if isinstance(schema, Record) else (Field("value", schema),)


def check_resolves(old: SchemaProjection, new: SchemaProjection) -> None:
    """Raise IncompatibleError if Avro does not read data of `old` as `new`."""
    found = check_pair(new.schema, old.schema)
    if found:
        raise IncompatibleError(
            f"rows of version {old.version} cannot be read as version {new.version}: "
            f"{found[0].message}",
            fix="give the new events a new topic",
        )


def value_type(schema: Schema) -> Schema:
    """Return the one value type of a union that became one column; other schemas unchanged."""
    if not isinstance(schema, Union):
        return schema
    values = _value_branches(schema)
    return values[-1] if values else schema.branches[0]


def _column(old: Schema, new: Schema, f: Field, stored: Mapping[str, StructField]) -> OldValue:
    own = stored.get(f.name.lower())
    if not isinstance(old, Record) or not isinstance(new, Record):
        whole = stored["value"]
        return _value(StoredValue(whole.name, whole.type), whole.type, old, f.type, whole.name)
    source = source_field(old, new, f)
    if source is None:
        return _absent(f, old, own, StoredValue(f.name, own.type) if own else None)
    found = stored[source.name.lower()]
    at = StoredValue(f.name if found is own else found.name, found.type)
    return _value(at, found.type, source.type, f.type, source.name)


def _absent(f: Field, old: Record, own: StructField | None, at: OldValue | None) -> OldValue:
    """Return a field of the new schema for rows without it; `own` and `at`: where it is stored."""
    type_ = column_type(f.type)
    value = column_default(f) if f.has_default else None
    unused = all(one.name.lower() != f.name.lower() for one in old.fields)
    if value is None and at is not None and own is not None and unused and own.type == type_:
        return at
    return ConstantValue(value, type_)


def _value(at: OldValue, stored: ColumnType, old: Schema, new: Schema, path: str) -> OldValue:
    """Return the stored value `at` of schema `old` as a value of `new`."""
    target = column_type(new)
    if (
        isinstance(target, StructColumn)
        and isinstance(stored, StructColumn)
        and target.of == stored.of
    ):
        return _struct(at, stored, old, new, target, path)
    if isinstance(target, StructColumn) and isinstance(new, Union):
        return _wrapped(at, stored, old, new, target, path)
    old, new = value_type(old), value_type(new)
    if isinstance(new, Array) and isinstance(old, Array) and isinstance(stored, ListColumn):
        item = _value(ItemValue(), stored.item, old.items, new.items, f"{path}[]")
        same = item == ItemValue()
        return at if same else ListValue(at, item, ListColumn(column_type(new.items)))
    if isinstance(new, MapType) and isinstance(old, MapType) and isinstance(stored, MapColumn):
        item = _value(ItemValue(), stored.value, old.values, new.values, f"{path}{{}}")
        same = item == ItemValue()
        return at if same else MapValue(at, item, MapColumn(column_type(new.values)))
    if isinstance(new, EnumType) and isinstance(old, EnumType):
        gone = tuple(symbol for symbol in old.symbols if symbol not in new.symbols)
        return SymbolValue(at, gone, new.default) if gone and new.default is not None else at
    if new.kind == "float" and old.kind in ("int", "long"):
        return CastValue(at, "float", DOUBLE)
    if _text_form(old) != _text_form(new):
        return _convert_text(at, old, new, path)
    return at if stored == target else _cast(at, stored, target, old, new, path)


def _wrapped(
    at: OldValue, stored: ColumnType, old: Schema, new: Union, target: StructColumn, path: str
) -> OldValue:
    """Return the struct of a union of several types, from a value of one type."""
    value = value_type(old)
    to = resolve_branch(value, new)
    names = union_names(new) or {}
    # A column of [int, long] does not know the branch of a number.
    merged = isinstance(old, Union) and len(_value_branches(old)) > 1
    if merged or to is None or to not in names:
        raise _changed_value_error(path, stored, target)
    inside = {names[to]: _value(at, stored, value, new.branches[to], path)}
    members: dict[str, OldValue] = {**_no_branches(new, names), **inside}
    return StructValue(at, tuple((f.name, members[f.name]) for f in target.fields), target)


def _struct(
    at: OldValue, stored: StructColumn, old: Schema, new: Schema, target: StructColumn, path: str
) -> OldValue:
    members = _members(at, stored, old, new, path)
    if stored == target and all(members[f.name] == MemberValue(at, f.name) for f in target.fields):
        return at
    return StructValue(at, tuple((f.name, members[f.name]) for f in target.fields), target)


def _members(
    at: OldValue, stored: StructColumn, old: Schema, new: Schema, path: str
) -> dict[str, OldValue]:
    """Return each member of the new struct as a value of the stored one."""
    names = union_names(new) if isinstance(new, Union) else None
    if isinstance(new, Union) and names is not None:
        return _branches(at, stored, old, new, names, path)
    old, new = value_type(old), value_type(new)
    if not isinstance(new, Record) or not isinstance(old, Record):  # an Avro duration
        return {f.name: MemberValue(at, f.name) for f in stored.fields}
    if not new.fields:
        return {EMPTY_FIELD: ConstantValue(True, BOOLEAN)}
    inside = {f.name.lower(): f for f in stored.fields}
    members: dict[str, OldValue] = {}
    for f in new.fields:
        source = source_field(old, new, f)
        if source is None:
            own = inside.get(f.name.lower())
            members[f.name] = _absent(f, old, own, MemberValue(at, own.name) if own else None)
            continue
        found = inside[source.name.lower()]
        member = MemberValue(at, found.name)
        members[f.name] = _value(member, found.type, source.type, f.type, f"{path}.{found.name}")
    return members


def _branches(
    at: OldValue, stored: StructColumn, old: Schema, new: Union, names: dict[int, str], path: str
) -> dict[str, OldValue]:
    before = union_names(old) if isinstance(old, Union) else None
    members = _no_branches(new, names)
    if not isinstance(old, Union) or before is None:
        return {**members}
    found: dict[str, OldValue] = {}
    for i, name in before.items():
        to = resolve_branch(old.branches[i], new)
        inside = stored.field(name)
        if to is None or to not in names or inside is None:
            continue
        member = MemberValue(at, name)
        value = _value(member, inside.type, old.branches[i], new.branches[to], f"{path}.{name}")
        known = found.get(names[to])
        found[names[to]] = value if known is None else FirstValue(known, value)
    for name, absent in members.items():
        own = stored.field(name)
        unused = all(name.lower() != one.lower() for one in before.values())
        if own is not None and unused and own.type == absent.type:
            found.setdefault(name, MemberValue(at, name))
    return {**members, **found}


def _no_branches(new: Union, names: Mapping[int, str]) -> dict[str, ConstantValue]:
    return {name: ConstantValue(None, column_type(new.branches[i])) for i, name in names.items()}


def _cast(
    at: OldValue, stored: ColumnType, target: ColumnType, old: Schema, new: Schema, path: str
) -> OldValue:
    """Return a value of one type as Avro reads it in another.

    Raises IncompatibleError if that would be another value. A logical type that is added or removed
    leaves the number as it was.
    """
    before, after = _timestamp_unit(old), _timestamp_unit(new)
    if target == TIMESTAMP and stored in (INT, BIGINT) and before is None:
        return CastValue(at, f"timestamp_{after}", target)
    if stored == TIMESTAMP and target == BIGINT and after is None:
        return CastValue(at, f"unix_{before}", target)
    if (stored, target) in ((INT, DATE), (DATE, INT)):
        return CastValue(at, "days", target)
    same_scale = (
        isinstance(stored, DecimalColumn)
        and isinstance(target, DecimalColumn)
        and stored.scale == target.scale
        and stored.precision <= target.precision
    )
    if same_scale or (stored, target) in _CASTS:
        return CastValue(at, "cast", target)
    raise _changed_value_error(path, stored, target)


def _text_form(schema: Schema) -> str | None:
    """Return the text form of a column whose Avro type is bytes: a UUID, or a wide decimal."""
    logical = getattr(schema, "logical", None)
    if logical is None or schema.kind == "string" or column_type(schema) != STRING:
        return None
    return f"decimal of scale {logical.scale}" if logical.name == "decimal" else "uuid"


def _convert_text(at: OldValue, old: Schema, new: Schema, path: str) -> OldValue:
    """Return bytes as the text of a UUID, or the reverse; a wide decimal does not convert."""
    if isinstance(old, Fixed) and isinstance(new, Fixed) and old.size == new.size == 16:
        if (_text_form(old), _text_form(new)) == (None, "uuid"):
            return CastValue(at, "uuid_text", STRING)
        if (_text_form(old), _text_form(new)) == ("uuid", None):
            return CastValue(at, "uuid_bytes", BINARY)
    raise IncompatibleError(
        f"column {path} is {type_name(old)} in rows of an earlier version, which the table keeps "
        f"as {ddl(column_type(old))}: it cannot be made {type_name(new)}",
        fix=_FIX_NEW_FIELD,
    )


def _timestamp_unit(schema: Schema) -> str | None:
    logical = getattr(schema, "logical", None)
    name = logical.name if logical else ""
    return name.rpartition("-")[2] if "timestamp-" in name else None


def _changed_value_error(path: str, stored: ColumnType, target: ColumnType) -> IncompatibleError:
    return IncompatibleError(
        f"column {path} cannot be made {ddl(target)} from {ddl(stored)} without changing its "
        "values",
        fix=_FIX_NEW_FIELD,
    )


def _value_branches(union: Union) -> list[Schema]:
    return [branch for branch in union.branches if branch.kind != "null"]
