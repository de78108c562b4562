"""Parquet field ids: one number for each column and member of a table, the same for ever.

Engines that read by id, such as Iceberg's, find a renamed field by its number. They do not take a
new field for a dropped one of the same name.

Rules:

- Pure. An id follows a field through renames (aliases), and is never given to another field.
- A path is the names from the column down, joined by dots. `[]` is the item of a list, `{}` the
  value of a map, and `{key}` its key.
- A field whose kind of column changes (a number that becomes a struct, a timestamp in UTC that
  becomes a local one) gets a new id.
- All files of a table have a local timestamp in the same form. `local` lists those that are in no
  time zone. Files of earlier releases have the others in UTC, until the table is rebuilt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hadoop_loader._tables.columns import (
    FILE_COLUMNS,
    TIMESTAMP,
    ColumnType,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructColumn,
    StructField,
    column_type,
)
from hadoop_loader._tables.defaults import union_names
from hadoop_loader._tables.old_rows import schema_fields, value_type
from headworks._decoding.resolution import resolve_branch, source_field
from headworks.schema import Array, MapType, Record, Schema, Union

_LOCAL = "local timestamp"  # the kind of its columns


@dataclass(frozen=True, slots=True)
class FieldIds:
    """The ids of a table's columns and members by path, and the next free one.

    `local`: the ids of the timestamps that are in no time zone.
    """

    following: int
    paths: Mapping[str, int]
    local: frozenset[int] = frozenset()

    @property
    def text(self) -> str:
        """The ids as JSON, always the same for the same ids."""
        local = {"local": sorted(self.local)} if self.local else {}
        found = {"following": self.following, "paths": self.paths, **local}
        return json.dumps(found, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> FieldIds:
        """Return the ids in a `text`."""
        found: dict[str, Any] = json.loads(text)
        return cls(found["following"], found["paths"], frozenset(found.get("local", ())))


NO_FIELD_IDS = FieldIds(1, {})


def field_ids(before: FieldIds, old: Schema | None, new: Schema) -> FieldIds:
    """Return the ids of a table of `new`; `before` are those of `old`, the schema before it."""
    numbering = _Numbering(before)
    for column in FILE_COLUMNS:
        numbering.give(column.name, column.name)
    for f in schema_fields(new):
        source = None if old is None else _source(old, new, f.name)
        numbering.walk(f.name, f.type, *(source or (None, None)))
    return FieldIds(numbering.following, numbering.paths, frozenset(numbering.local))


def all_local(ids: FieldIds, schema: Schema) -> FieldIds:
    """Return `ids` for a table of `schema` whose files are all written anew: nothing is in UTC."""
    fresh = field_ids(NO_FIELD_IDS, None, schema)
    local = (ids.paths[path] for path, number in fresh.paths.items() if number in fresh.local)
    return replace(ids, local=frozenset(local))


def stored_columns(
    columns: Sequence[StructField], ids: FieldIds, at: str = ""
) -> tuple[StructField, ...]:
    """Return columns as the table's files have them; `at`: the path of the struct around them."""
    return tuple(_stored_column(c, f"{at}{c.name}", ids) for c in columns)


def _stored_column(column: StructField, path: str, ids: FieldIds) -> StructField:
    stored = _stored(column.type, path, ids)
    return column if stored is column.type else replace(column, type=stored)


def _stored(type_: ColumnType, path: str, ids: FieldIds) -> ColumnType:
    if isinstance(type_, StructColumn):
        return replace(type_, fields=stored_columns(type_.fields, ids, f"{path}."))
    if isinstance(type_, ListColumn):
        return ListColumn(_stored(type_.item, f"{path}[]", ids))
    if isinstance(type_, MapColumn):
        return MapColumn(_stored(type_.value, f"{path}{{}}", ids))
    number = ids.paths.get(path)
    in_utc = number is not None and number not in ids.local and _kind(type_) == _LOCAL
    return TIMESTAMP if in_utc else type_


def _source(old: Schema, new: Schema, name: str) -> tuple[str, Schema] | None:
    """Return the name and type of the old field that feeds the new one."""
    if not isinstance(old, Record) or not isinstance(new, Record):
        return (name, old) if not isinstance(old, Record) else None
    wanted = new.field(name)
    found = source_field(old, new, wanted) if wanted is not None else None
    return None if found is None else (found.name, found.type)


class _Numbering:
    """Gives ids to the paths of a new schema."""

    def __init__(self, before: FieldIds) -> None:
        self._before = before
        self._given: set[int] = set()  # two new fields may have the same old one as an alias
        self.following = before.following
        self.paths: dict[str, int] = {}
        self.local: set[int] = set()

    def give(self, path: str, source: str | None, *, local: bool = False) -> None:
        """Give a path the id of its source, or a new one; `local`: it is a local timestamp."""
        known = None if source is None else self._before.paths.get(source)
        if known is None or known in self._given:
            known, self.following = self.following, self.following + 1
            if local:
                self.local.add(known)
        elif known in self._before.local:
            self.local.add(known)
        self._given.add(known)
        self.paths[path] = known

    def walk(self, path: str, new: Schema, source: str | None, old: Schema | None) -> None:
        """Give ids to a field and everything in it; `source` and `old`: the field before."""
        kind = _kind(column_type(new))
        if old is not None and _kind(column_type(old)) != kind:
            source, old = None, None
        self.give(path, source, local=kind == _LOCAL)
        names = union_names(new) if isinstance(new, Union) else None
        if isinstance(new, Union) and names is not None:
            self._branches(path, new, names, source, old)
            return
        new, old = value_type(new), None if old is None else value_type(old)
        if isinstance(new, Array):
            items = old.items if isinstance(old, Array) else None
            self.walk(f"{path}[]", new.items, _below(source, "[]"), items)
        elif isinstance(new, MapType):
            values = old.values if isinstance(old, MapType) else None
            self.give(f"{path}{{key}}", _below(source, "{key}"))
            self.walk(f"{path}{{}}", new.values, _below(source, "{}"), values)
        elif isinstance(new, Record) and new.fields:
            for f in new.fields:
                found = _source(old, new, f.name) if isinstance(old, Record) else None
                name, type_ = found or (None, None)
                self.walk(f"{path}.{f.name}", f.type, name and _below(source, f".{name}"), type_)
        elif isinstance(column := column_type(new), StructColumn):  # a duration, an empty record
            for member in column.fields:
                self.give(f"{path}.{member.name}", _below(source, f".{member.name}"))

    def _branches(
        self, path: str, new: Union, names: dict[int, str], source: str | None, old: Schema | None
    ) -> None:
        before = union_names(old) if isinstance(old, Union) else None
        sources: dict[int, tuple[str, Schema]] = {}
        if isinstance(old, Union):
            for i, name in (before or {}).items():
                to = resolve_branch(old.branches[i], new)
                if to is not None:
                    sources.setdefault(to, (name, old.branches[i]))
        for i, name in names.items():
            at, type_ = sources.get(i, (None, None))
            self.walk(f"{path}.{name}", new.branches[i], at and _below(source, f".{at}"), type_)


def _below(source: str | None, step: str) -> str | None:
    return None if source is None else f"{source}{step}"


def _kind(type_: ColumnType) -> str:
    if isinstance(type_, StructColumn):
        return type_.of
    if isinstance(type_, ListColumn):
        return "list"
    if isinstance(type_, MapColumn):
        return "map"
    local = isinstance(type_, ScalarColumn) and type_.local
    return _LOCAL if local else "scalar"
