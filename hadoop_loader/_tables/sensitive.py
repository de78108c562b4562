"""Sensitive columns: their comments, their property, and the masked view of a topic.

Rules:

- Pure: schemas in, names and SQL out.
- A path that any schema of the table has marked stays sensitive. A renamed field keeps its mark.
- A masked value is NULL, of the column's type, so that it does not even say whether one was sent.
- A masked view has no lambdas, so that Hive reads it as Spark does. If a part of a list, map, or
  union of several types is sensitive, all of it is masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hadoop_loader._tables.columns import (
    ColumnType,
    StructColumn,
    StructField,
    quoted,
    table_columns,
)
from hadoop_loader._tables.old_rows import SchemaProjection, value_type
from hadoop_loader._tables.sql_literals import string_literal
from headworks.schema import Array, Field, MapType, Record, Schema, Union
from headworks.schema._sensitive import ENTRY, ITEM, Paths, paths_below, sensitive_paths

PROPERTY = "headworks.sensitive"
MASKED_BY = "headworks.masked_by"  # the property of a masked view that says what defined it
_MAX_PROPERTY_CHARACTERS = 4000  # of a value in Hive's metastore


@dataclass(frozen=True, slots=True)
class Mark:
    """The sensitive part of a column: all of it, or only these members."""

    members: Mapping[str, Mark] = field(default_factory=dict)

    def names(self, path: str) -> Iterator[str]:
        """Yield the dotted paths of the sensitive values in the column or member `path`."""
        if not self.members:
            yield path
        for name, inner in self.members.items():
            yield from inner.names(f"{path}.{name}")

    def paths(self, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the same as paths of a schema."""
        if not self.members:
            yield path
        for name, inner in self.members.items():
            yield from inner.paths((*path, name))


def known_paths(history: Sequence[SchemaProjection], earlier: Iterable[Sequence[str]]) -> Paths:
    """Return the sensitive paths of a topic, under each name that a field has had.

    `earlier`: the paths of schemas that the history no longer has.
    """
    paths: Paths = frozenset(tuple(path) for path in earlier)
    for projection in history:
        paths |= sensitive_paths(projection.schema)
        if isinstance(projection.schema, Record) and () not in paths:
            marks = _marks(projection.schema, paths).items()
            paths |= {path for name, mark in marks for path in mark.paths((name,))}
    return paths


def paths_of_versions(schemas: Iterable[Schema], earlier: Paths) -> Paths:
    """Return `earlier` with the sensitive paths of these schemas, under each later name.

    `schemas`: of all versions of a subject, in order. A table need not be able to hold them.
    """
    paths = earlier
    for schema in schemas:
        paths |= sensitive_paths(schema)
        paths |= frozenset(_renamed(schema, paths))
    return paths


def sensitive_columns(history: Sequence[SchemaProjection], paths: Paths) -> dict[str, Mark]:
    """Return the sensitive columns that a table has or had, by name."""
    found: dict[str, Mark] = {}
    for projection in history if paths else ():
        found |= _marks(projection.schema, paths)
    return found


def commented(columns: Sequence[StructField], marks: Mapping[str, Mark]) -> tuple[StructField, ...]:
    """Return the columns; the comments of sensitive ones say so first."""
    return tuple(
        replace(c, comment=_comment(c, marks[c.name])) if c.name in marks else c for c in columns
    )


def sensitive_property(marks: Mapping[str, Mark]) -> dict[str, str]:
    """Return the property that lists the sensitive values; none if there are none."""
    text = ",".join(path for name in sorted(marks) for path in marks[name].names(name))
    if len(text) > _MAX_PROPERTY_CHARACTERS:
        text = text[: _MAX_PROPERTY_CHARACTERS - 4].rpartition(",")[0] + ",..."
    return {PROPERTY: text} if text else {}


def masked_query(view: str, columns: Sequence[str], latest: Schema, paths: Paths) -> str:
    """Return the SELECT of `columns` over a topic's view, without the sensitive values.

    `view` is a quoted name, and `latest` the schema of the view.
    """
    marks = _marks(latest, paths)
    types = {c.name: c.type for c in table_columns(latest)}
    items = [
        f"{_masked(quoted(name), types[name], marks[name])} AS {quoted(name)}"
        if name in marks
        else quoted(name)
        for name in columns
    ]
    return f"SELECT {', '.join(items)} FROM {view}"


def _renamed(schema: Schema, paths: Paths) -> Iterator[tuple[str, ...]]:
    """Yield the paths under the names that fields have in `schema`, and under those before."""
    if not paths:
        return
    if isinstance(schema, Record):
        for f in schema.fields:
            below = paths_below(paths, f.name, *f.aliases)
            yield from ((f.name, *rest) for rest in below)
            yield from ((f.name, *rest) for rest in _renamed(f.type, below))
    elif isinstance(schema, Array):
        yield from ((ITEM, *rest) for rest in _renamed(schema.items, paths_below(paths, ITEM)))
    elif isinstance(schema, MapType):
        yield from ((ENTRY, *rest) for rest in _renamed(schema.values, paths_below(paths, ENTRY)))
    elif isinstance(schema, Union):
        for branch in schema.branches:
            yield from _renamed(branch, paths)


def _marks(schema: Schema, paths: Paths) -> dict[str, Mark]:
    """Return the marks of the columns of a topic with this schema."""
    if not paths:
        return {}
    columns = table_columns(schema)
    if not isinstance(schema, Record) or () in paths:
        return {c.name: Mark() for c in columns}
    return _members(columns, schema.fields, paths)


def _members(
    members: Sequence[StructField], fields: Sequence[Field], paths: Paths
) -> dict[str, Mark]:
    found = (
        (member.name, _mark(member.type, f.type, paths_below(paths, f.name, *f.aliases)))
        for member, f in zip(members, fields, strict=True)
    )
    return {name: mark for name, mark in found if mark is not None}


def _mark(type_: ColumnType, schema: Schema, paths: Paths) -> Mark | None:
    """Return the mark of a column for the paths in it; None if it has none."""
    if not paths:
        return None
    record = value_type(schema)
    if () in paths or not isinstance(record, Record):
        return Mark()
    if not isinstance(type_, StructColumn) or type_.of != "record":
        return Mark()
    if not record.fields:
        return None
    members = _members(type_.fields, record.fields, paths)
    return Mark(members) if members else None


def _masked(at: str, type_: ColumnType, mark: Mark) -> str:
    """Return the SQL of a value without its sensitive parts."""
    if not mark.members or not isinstance(type_, StructColumn):
        return f"CASE WHEN FALSE THEN {at} END"  # a NULL of that type: Hive casts no structs
    members = []
    for member in type_.fields:
        inner, name = f"{at}.{quoted(member.name)}", member.name
        shown = _masked(inner, member.type, mark.members[name]) if name in mark.members else inner
        members.append(f"{string_literal(name)}, {shown}")
    return f"CASE WHEN {at} IS NOT NULL THEN named_struct({', '.join(members)}) END"


def _comment(column: StructField, mark: Mark) -> str:
    said = "sensitive"
    if mark.members:
        inner = (path.removeprefix(f"{column.name}.") for path in mark.names(column.name))
        said = f"partly sensitive ({', '.join(inner)})"
    return f"{said}: {column.comment}" if column.comment else said
