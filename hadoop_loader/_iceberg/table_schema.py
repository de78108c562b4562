"""The schema of an Iceberg table over a topic's files, as Iceberg writes it in JSON.

Rules:

- Pure. A field has the id that it has in the files. A file without ids is read by names: the name
  mapping has every column of every file.
- A missing field has its default in old rows, as Avro gives it (`initial-default`). Iceberg lets a
  default never change, so a field keeps the one that it was published with.
- Iceberg can say less than the views: no defaults of structs, lists, and maps, no int as double, no
  replaced enum symbols. If old files need more, NeedsRewriteError names the column: the table's
  files must be rewritten first.
- Names that Iceberg keeps for itself are replaced: `_partition` is `_topic_partition`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from hadoop_loader._iceberg.field_lineage import (
    FileFields,
    MappedField,
    ambiguous_name,
    file_fields,
    inner_fields,
    mapped_fields,
    stored_fields,
)
from hadoop_loader._tables.columns import (
    BIGINT,
    INT,
    METADATA_COLUMNS,
    TIMESTAMP,
    ColumnType,
    DecimalColumn,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructColumn,
    StructField,
)
from hadoop_loader._tables.field_ids import FieldIds
from hadoop_loader._tables.old_rows import SchemaProjection, file_columns, row_values
from hadoop_loader._tables.old_values import (
    CastValue,
    ConstantValue,
    ItemValue,
    ListValue,
    MapValue,
    MemberValue,
    OldValue,
    StoredValue,
    StructValue,
)
from hadoop_loader._tables.sensitive import commented, known_paths, sensitive_columns
from headworks.errors import UsageError
from headworks.schema import Record, governance_of

_TYPES = {"bigint": "long", "timestamp": "timestamptz"}
# https://iceberg.apache.org/spec/#reserved-field-ids and the metadata columns of engines.
_RESERVED = frozenset(
    (
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_change_type"),
        *("_change_ordinal", "_commit_snapshot_id", "_row_id", "_last_updated_sequence_number"),
    )
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UTC = "+00:00"
_NONE = object()  # a default that Iceberg cannot have


class NeedsRewriteError(UsageError):
    """Iceberg cannot show a table's old files as its view does."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The parts of an Iceberg table that read a topic's files."""

    fields: str  # the schema, as JSON
    last_id: int  # no field has a larger id
    names: str  # the name mapping, as JSON
    day_of: str | None  # the column by whose day the table is partitioned
    day_id: int  # the id of that column; 0 if there is none


def table_schema(
    history: Sequence[SchemaProjection],
    ids: FieldIds,
    declared: Mapping[int, Any],
    *,
    sensitive: Iterable[Sequence[str]] = (),
    with_defaults: bool = True,
) -> TableSchema:
    """Return the schema of an Iceberg table; `ids` are the ids in its files.

    `declared`: the published defaults by field id, as JSON; None if a field has none.
    `sensitive`: the sensitive paths of schemas that the history no longer has.
    `with_defaults`: the table's format (3) has defaults. Raises NeedsRewriteError if Iceberg would
    show old rows otherwise than the view.
    """
    each = file_fields(history)
    mapped = mapped_fields(each)
    if ambiguous_name(mapped) is not None:
        raise _needs_rewrite(str(ambiguous_name(mapped)))
    latest = stored_fields(each[-1], ids)
    missing = dict(_missing_defaults(history, latest))
    defaults: dict[str, Any] = {}
    for path in latest.types:
        known = ids.paths[path]
        value = missing.get(path)
        if known in declared:
            value = _in_form_of(latest.types[path], declared[known])
        if value is _NONE or (value is not None and not with_defaults):
            raise _needs_rewrite(path)
        defaults[path] = value
    if with_defaults:
        defaults["_topic_life"] = declared.get(ids.paths["_topic_life"], 1)
    for projection, fields in zip(history[:-1], each, strict=False):
        _Comparison(fields, latest, defaults).check(history, projection)
    names = _names([c.name for c in latest.columns])
    writer = _Writer(ids, defaults)
    columns = [c for c in latest.columns if c.name != "_written"]
    columns = [*commented(columns, sensitive_columns(history, known_paths(history, sensitive)))]
    real = {latest.numbers[path]: ids.paths[path] for path in latest.types}
    time = _event_time(history[-1], latest)
    return TableSchema(
        json.dumps({"type": "struct", "fields": [writer.column(c, names) for c in columns]}),
        ids.following,
        json.dumps(list(_mapping(mapped, real, iter(range(ids.following, 2**31 - 1000))))),
        None if time is None else ".".join((names[time[0]], *time[1:])),
        0 if time is None else ids.paths[".".join(time)],
    )


def fixed_schema(
    columns: Sequence[StructField], time: str, defaults: Mapping[str, Any]
) -> TableSchema:
    """Return the schema of a table whose columns never change, and whose files have no ids.

    It is partitioned by the day of column `time`. `defaults`: what a column has in files without
    it.
    """
    ids = FieldIds(len(columns) + 1, {c.name: n for n, c in enumerate(columns, 1)})
    names = _names([c.name for c in columns])
    writer = _Writer(ids, {c.name: defaults.get(c.name) for c in columns})
    mapping = [{"field-id": ids.paths[c.name], "names": [c.name]} for c in columns]
    return TableSchema(
        json.dumps({"type": "struct", "fields": [writer.column(c, names) for c in columns]}),
        ids.following,
        json.dumps(mapping),
        names[time],
        ids.paths[time],
    )


def _event_time(latest: SchemaProjection, fields: FileFields) -> tuple[str, ...] | None:
    """Return the path of the time by whose day files are split, if Iceberg has a day of it."""
    schema = latest.schema
    found = governance_of(schema).event_time if isinstance(schema, Record) else None
    path = found or ("_timestamp",)
    return tuple(path) if fields.types.get(".".join(path)) == TIMESTAMP else None


def _missing_defaults(
    history: Sequence[SchemaProjection], latest: FileFields
) -> Iterator[tuple[str, Any]]:
    """Return the default of each field of the latest schema that some old rows lack, by path."""
    files = file_columns(history)
    for projection in history[:-1]:
        for name, value in row_values(projection.schema, history[-1].schema, files):
            for path, constant in _constants(name, value):
                yield path, default_json(constant.value, latest.types[path])


def _constants(path: str, value: OldValue) -> Iterator[tuple[str, ConstantValue]]:
    if isinstance(value, ConstantValue):
        yield path, value
    elif isinstance(value, StructValue):
        for name, member in value.members:
            yield from _constants(f"{path}.{name}", member)
    elif isinstance(value, ListValue):
        yield from _constants(f"{path}[]", value.item)
    elif isinstance(value, MapValue):
        yield from _constants(f"{path}{{}}", value.item)


class _Comparison:
    """Whether Iceberg shows the rows of one old schema as the view does."""

    def __init__(self, old: FileFields, latest: FileFields, defaults: Mapping[str, Any]) -> None:
        self._old, self._latest, self._defaults = old, latest, defaults
        self._known = set(old.numbers.values())

    def check(self, history: Sequence[SchemaProjection], old: SchemaProjection) -> None:
        """Raise NeedsRewriteError with the first column that differs."""
        for name, value in row_values(old.schema, history[-1].schema, file_columns(history)):
            if not self._same(value, name, ""):
                raise _needs_rewrite(name)

    def _same(self, value: OldValue, path: str, item: str) -> bool:
        """Return whether Iceberg shows `value` at `path`; `item`: the path of an ItemValue."""
        if isinstance(value, (StoredValue, MemberValue, ItemValue)):
            return self._stored(_path(value, item), path)
        if isinstance(value, ConstantValue):
            absent = self._latest.numbers[path] not in self._known
            default = default_json(value.value, self._latest.types[path])
            return absent and self._defaults[path] == default
        if isinstance(value, CastValue):
            return value.how == "cast" and self._same(value.of, path, item)
        if not isinstance(value, (StructValue, ListValue, MapValue)):
            return False
        at = _path(value.of, item)
        if at is None or self._old.numbers.get(at) != self._latest.numbers[path]:
            return False
        if isinstance(value, StructValue):
            return all(self._same(one, f"{path}.{name}", item) for name, one in value.members)
        step = "[]" if isinstance(value, ListValue) else "{}"
        return self._same(value.item, f"{path}{step}", f"{at}{step}")

    def _stored(self, at: str | None, path: str) -> bool:
        """Return whether the stored value at `at` is what Iceberg reads at `path`."""
        if at is None or at not in self._old.types:
            unknown = self._latest.numbers[path] not in self._known
            return unknown and self._defaults[path] is None
        if self._old.numbers[at] != self._latest.numbers[path]:
            return False
        old, new = self._old.types[at], self._latest.types[path]
        if isinstance(old, (ScalarColumn, DecimalColumn)) or type(old) is not type(new):
            return _reads(old, new)
        inner = {name: inside for name, inside, _ in inner_fields(at, old)}
        return all(
            self._stored(inner.get(name, f"{at}.{name}"), inside)
            for name, inside, _ in inner_fields(path, new)
        )


def _path(value: OldValue, item: str) -> str | None:
    """Return the path of a stored value; None for a computed one."""
    if isinstance(value, StoredValue):
        return value.name
    if isinstance(value, ItemValue):
        return item
    if isinstance(value, MemberValue):
        of = _path(value.of, item)
        return None if of is None else f"{of}.{value.name}"
    return None


def _reads(old: ColumnType, new: ColumnType) -> bool:
    """Return whether Iceberg reads one type as another."""
    if isinstance(old, DecimalColumn) and isinstance(new, DecimalColumn):
        return old.scale == new.scale and old.precision <= new.precision
    return old == new or (old, new) == (INT, BIGINT)


class _Writer:
    """Writes columns as Iceberg's JSON."""

    def __init__(self, ids: FieldIds, defaults: Mapping[str, Any]) -> None:
        self._ids, self._defaults = ids.paths, defaults

    def column(self, column: Any, names: Mapping[str, str]) -> dict[str, Any]:
        """Return a column; `names`: what it is called in Iceberg."""
        return self._field(names[column.name], column.name, column.type, column.comment)

    def _field(self, name: str, path: str, type_: ColumnType, doc: str | None) -> dict[str, Any]:
        default = self._defaults[path]
        given = {} if default is None else {"initial-default": default, "write-default": default}
        return {
            "id": self._ids[path],
            "name": name,
            "required": False,
            "type": self._type(path, type_),
            **({"doc": doc} if doc else {}),
            **given,
        }

    def _type(self, path: str, type_: ColumnType) -> Any:
        if isinstance(type_, ScalarColumn):
            return "timestamp" if type_.local else _TYPES.get(type_.name, type_.name)
        if isinstance(type_, DecimalColumn):
            return f"decimal({type_.precision}, {type_.scale})"
        if isinstance(type_, ListColumn):
            item = {"element-id": self._ids[f"{path}[]"], "element-required": False}
            return {"type": "list", **item, "element": self._type(f"{path}[]", type_.item)}
        if isinstance(type_, MapColumn):
            key = {"key-id": self._ids[f"{path}{{key}}"], "key": "string"}
            value = {"value-id": self._ids[f"{path}{{}}"], "value-required": False}
            inner = self._type(f"{path}{{}}", type_.value)
            return {"type": "map", **key, **value, "value": inner}
        members = [self._field(f.name, f"{path}.{f.name}", f.type, f.comment) for f in type_.fields]
        return {"type": "struct", "fields": members}


def default_json(value: Any, type_: ColumnType) -> Any:
    """Return a default as Iceberg's JSON, or `_NONE` if Iceberg has no such default."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(type_, (StructColumn, ListColumn, MapColumn)):
        return _NONE
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return value if isfinite(value) else _NONE
    if type_ == TIMESTAMP or type_ == ScalarColumn("date"):
        return _time_text(value, type_)
    return value


def _time_text(value: int, type_: ColumnType) -> Any:
    try:
        if type_ == TIMESTAMP:
            text = (_EPOCH + timedelta(microseconds=value)).isoformat(timespec="microseconds")
            return _in_form_of(type_, text)
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    except OverflowError:
        return _NONE


def _in_form_of(type_: ColumnType, default: Any) -> Any:
    """Return a default as columns of a type have it; tables may have had a timestamp in UTC."""
    local = isinstance(type_, ScalarColumn) and type_.local
    return default.removesuffix(_UTC) if local and isinstance(default, str) else default


def _names(columns: Sequence[str]) -> dict[str, str]:
    """Return what each column is called in Iceberg."""
    own = {c.name for c in METADATA_COLUMNS}
    used = {name.lower() for name in columns if name.lower() not in _RESERVED}
    names = {}
    for name in columns:
        shown = name
        if name.lower() in _RESERVED:
            shown = f"_topic{name}" if name in own else f"field{name}"
            while shown.lower() in used:
                shown += "_"
            used.add(shown.lower())
        names[name] = shown
    return names


def _mapping(
    fields: Mapping[int, MappedField], real: Mapping[int, int], free: Iterator[int]
) -> Iterator[dict[str, Any]]:
    """Return Iceberg's name mapping; a field that the latest schema lacks gets a free id."""
    for number, one in fields.items():
        known = real.get(number)
        members = list(_mapping(one.members, real, free))
        inside = {"fields": members} if members else {}
        yield {"field-id": next(free) if known is None else known, "names": one.names, **inside}


def _needs_rewrite(column: str) -> NeedsRewriteError:
    return NeedsRewriteError(
        f"Iceberg cannot show column {column} of older files as the view does",
        fix="run `headworks load compact --all TOPIC`; until then, readers of Iceberg see the "
        "last snapshot",
    )
