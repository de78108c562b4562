"""Which column of an old file is which column of the latest schema, through all schemas between.

Rules:

- Pure. A path is that of `field_ids`: `user.name`, `lines[]`, `prefs{}`.
- Fields keep their identity through renames, as their Parquet field ids do. A field that was
  dropped and came back is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hadoop_loader._tables.columns import (
    FILE_COLUMNS,
    ColumnType,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructColumn,
    StructField,
    table_columns,
)
from hadoop_loader._tables.field_ids import NO_FIELD_IDS, FieldIds, field_ids, stored_columns
from hadoop_loader._tables.old_rows import SchemaProjection
from headworks.schema import Schema


@dataclass(frozen=True, slots=True)
class FileFields:
    """The columns and members of the files of one schema, by path."""

    columns: tuple[StructField, ...]
    types: dict[str, ColumnType]
    numbers: dict[str, int]  # the identity of each path in the history


@dataclass(slots=True)
class MappedField:
    """A column or member under all the names that it has in files."""

    number: int
    names: list[str] = field(default_factory=list)
    members: dict[int, MappedField] = field(default_factory=dict)  # by identity


def file_fields(history: Sequence[SchemaProjection]) -> list[FileFields]:
    """Return the fields of the files of each schema of a table, oldest first."""
    found: list[FileFields] = []
    ids: FieldIds = NO_FIELD_IDS
    before: Schema | None = None
    for projection in history:
        ids = field_ids(ids, before, projection.schema)
        before = projection.schema
        columns = (*table_columns(projection.schema), *FILE_COLUMNS)
        types = dict(_types(columns))
        found.append(FileFields(columns, types, {path: ids.paths[path] for path in types}))
    return found


def stored_fields(fields: FileFields, ids: FieldIds) -> FileFields:
    """Return the fields of the latest schema with the types that files have; see `field_ids`."""
    columns = stored_columns(fields.columns, ids)
    return replace(fields, columns=columns, types=dict(_types(columns)))


def mapped_fields(each: Sequence[FileFields]) -> dict[int, MappedField]:
    """Return every field that any file has, with all its names. The last schema's name is first."""
    roots: dict[int, MappedField] = {}
    for fields in reversed(each):
        for column in fields.columns:
            _map(roots, column.name, column.name, column.type, fields)
    return roots


def ambiguous_name(fields: dict[int, MappedField]) -> str | None:
    """Return a name that two fields beside each other have had, or None."""
    seen: set[str] = set()
    for one in fields.values():
        for name in one.names:
            if name in seen:
                return name
            seen.add(name)
        inside = ambiguous_name(one.members)
        if inside is not None:
            return inside
    return None


def inner_fields(path: str, type_: ColumnType) -> list[tuple[str, str, ColumnType]]:
    """Return the name in a file, the path, and the type of each part of a column."""
    if isinstance(type_, ListColumn):
        return [("element", f"{path}[]", type_.item)]
    if isinstance(type_, MapColumn):
        text = ScalarColumn("string")
        return [("key", f"{path}{{key}}", text), ("value", f"{path}{{}}", type_.value)]
    if isinstance(type_, StructColumn):
        return [(f.name, f"{path}.{f.name}", f.type) for f in type_.fields]
    return []


def _types(columns: Sequence[StructField]) -> Iterator[tuple[str, ColumnType]]:
    stack = [(f.name, f.type) for f in columns]
    while stack:
        path, type_ = stack.pop()
        yield path, type_
        stack += [(inner, of) for _, inner, of in inner_fields(path, type_)]


def _map(
    siblings: dict[int, MappedField], name: str, path: str, type_: ColumnType, fields: FileFields
) -> None:
    number = fields.numbers[path]
    one = siblings.setdefault(number, MappedField(number))
    if name not in one.names:
        one.names.append(name)
    for inner_name, inner_path, inner_type in inner_fields(path, type_):
        _map(one.members, inner_name, inner_path, inner_type, fields)
