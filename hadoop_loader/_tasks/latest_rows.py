"""Rows of any file of a table in the table's latest schema, with defaults filled in: plain columns.

Rules:

- A row reads as the topic's view shows it: the values come from `old_rows`, as the view's do.
- `_written` says in which schema a row is. A row that is changed gets the number of the commit that
  rewrites it. All other metadata stay.
- A value that does not fit raises ArrowInvalid: nothing is cut or wrapped around.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hadoop_loader._fetch.row_numbers import scalar
from hadoop_loader._tables.arrow_types import arrow_schema, arrow_type
from hadoop_loader._tables.columns import (
    FILE_COLUMNS,
    ColumnType,
    ListColumn,
    MapColumn,
    StructColumn,
    StructField,
    table_columns,
)
from hadoop_loader._tables.field_ids import NO_FIELD_IDS, FieldIds, stored_columns
from hadoop_loader._tables.old_rows import SchemaProjection, file_columns, row_values
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
    SymbolValue,
)
from hadoop_loader._tasks.conform import conform, conform_array, whole_array
from headworks.schema import parse

Array = Any  # of pyarrow


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The schemas that a table's rows may be in, as texts: it travels to tasks.

    `projections` are (first commit, version, text), oldest first; `target` is the one to write, or
    None for the last of them. `number` is the commit that writes.
    """

    projections: tuple[tuple[int, int, str], ...]
    number: int
    target: str | None = None
    field_ids: FieldIds = NO_FIELD_IDS  # of the schema that is written

    @property
    def current_since(self) -> int:
        """The first commit whose rows need no change."""
        if self.target is not None:
            return self.number
        return self.projections[-1][0] if len(self.projections) > 1 else 0


class LatestRows:
    """Changes batches of rows of a table's files; see the module."""

    def __init__(self, history: TableHistory) -> None:
        self._history = history
        self._projections = [
            SchemaProjection(load, version, parse(text, strict=False))
            for load, version, text in history.projections
        ]
        target = history.target
        last = self._projections[-1].schema
        self._latest = last if target is None else parse(target, strict=False)
        self._files = file_columns(self._projections)
        columns = (*table_columns(self._latest), *FILE_COLUMNS)
        self._columns = stored_columns(columns, history.field_ids)
        self.schema = arrow_schema(self._columns, history.field_ids.paths)  # of the batches

    def batches(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return the rows of a batch, whose columns are those of its file."""
        written = _written(batch)
        firsts = [projection.load for projection in self._projections[1:]]
        found = []
        for at, first in enumerate([None, *firsts]):
            mask = (
                pc.is_valid(written) if first is None else pc.greater_equal(written, scalar(first))
            )
            if at < len(firsts):
                mask = pc.and_(mask, pc.less(written, scalar(firsts[at])))
            count = pc.sum(mask).as_py() or 0
            if count == batch.num_rows:
                return [self._batch(batch, at, written)] if count else []
            if count:
                found.append(self._batch(batch.filter(mask), at, written.filter(mask)))
        return found

    def _batch(self, batch: pa.RecordBatch, at: int, written: Any) -> pa.RecordBatch:
        changed = at < len(self._projections) - 1 or self._history.target is not None
        if changed:
            written = pa.repeat(pa.scalar(self._history.number, pa.int64()), len(written))
        data = self._changed(batch, at) if changed else {}
        kept = [c for c in self._columns if c.name not in data and c.name != "_written"]
        plain = conform(batch, kept, arrow_schema(kept, {}))
        arrays = {**data, "_written": written}
        arrays |= {c.name: plain.column(i) for i, c in enumerate(kept)}
        ordered = [arrays[c.name] for c in self._columns]
        return pa.RecordBatch.from_arrays(ordered, schema=self.schema)

    def _changed(self, batch: pa.RecordBatch, at: int) -> dict[str, Array]:
        """Return the columns that differ from the stored ones, for rows of a projection."""
        values = dict(row_values(self._projections[at].schema, self._latest, self._files))
        types = {c.name: c.type for c in self._columns}
        wanted = {
            name: value
            for name, value in values.items()
            if not isinstance(value, StoredValue) or value.name != name
        }
        stored = _Stored(batch, self._files)
        return {
            name: conform_array(_Evaluation(stored, len(batch)).array(value), types[name])
            for name, value in wanted.items()
        }


class _Stored:
    """The columns of a batch as the table over files has them, each made when first needed."""

    def __init__(self, batch: pa.RecordBatch, files: Sequence[StructField]) -> None:
        self._batch = batch
        self._files = {f.name.lower(): f for f in files}
        self._known: dict[str, Array] = {}

    def column(self, name: str) -> Array:
        """Return a column by its name, ignoring case."""
        key = name.lower()
        if key not in self._known:
            column = self._files[key]
            found = conform(self._batch, [column], arrow_schema([column], {}))
            self._known[key] = found.column(0)
        return self._known[key]


@dataclass(frozen=True)
class _Evaluation:
    """Computes values over the rows of a batch, or over the items of a list in it."""

    stored: _Stored
    length: int
    item: Array = None  # the items, inside a list or map

    def array(self, value: OldValue) -> Array:
        """Return a value of each row."""
        if isinstance(value, StoredValue):
            return self.stored.column(value.name)
        if isinstance(value, ItemValue):
            return self.item
        if isinstance(value, ConstantValue):
            return _constant(value, self.length)
        if isinstance(value, FirstValue):
            first = self.array(value.first)
            return pc.if_else(pc.is_valid(first), first, self.array(value.second))
        at = self.array(value.of)
        if isinstance(value, MemberValue):
            return _member(at, value.name)
        if isinstance(value, SymbolValue):
            gone = pc.is_in(at, value_set=pa.array(value.gone))
            return pc.if_else(gone, pa.scalar(value.default), at)
        if isinstance(value, CastValue):
            return _cast(at, value)
        if isinstance(value, (ListValue, MapValue)):
            return self._items(at, value)
        members = [
            conform_array(self.array(member), f.type)
            for (_, member), f in zip(value.members, value.type.fields, strict=True)
        ]
        fields = list(arrow_type(value.type))
        return pa.StructArray.from_arrays(members, fields=fields, mask=at.is_null())

    def _items(self, at: Array, value: ListValue | MapValue) -> Array:
        whole = whole_array(at)
        items = whole.values if isinstance(value, ListValue) else whole.items
        inside = _Evaluation(self.stored, len(items), items)
        changed = conform_array(inside.array(value.item), _item_type(value))
        wanted = arrow_type(value.type)
        if isinstance(value, ListValue):
            entries = changed
        else:
            entries = pa.StructArray.from_arrays(
                [whole.keys, changed], fields=[wanted.key_field, wanted.item_field]
            )
        buffers = whole.buffers()[:2]
        return pa.Array.from_buffers(
            wanted, len(whole), buffers, whole.null_count, children=[entries]
        )


def _item_type(value: ListValue | MapValue) -> ColumnType:
    return value.type.item if isinstance(value, ListValue) else value.type.value


def _written(batch: pa.RecordBatch) -> Any:
    """Return the commit that wrote each row; files of an earlier release have only the load."""
    load = batch.column("_load")
    at = batch.schema.get_field_index("_written")
    found = load if at < 0 else pc.coalesce(batch.column(at), load)
    return found.cast(pa.int64())


def _member(array: Array, name: str) -> Array:
    names = [array.type.field(i).name.lower() for i in range(array.type.num_fields)]
    return pc.struct_field(array, [names.index(name.lower())])


def _constant(value: ConstantValue, length: int) -> Array:
    type_ = arrow_type(value.type)
    if value.value is None:
        return pa.nulls(length, type_)
    one = pa.array([_arrow_value(value.value, value.type)], type_)
    if pa.types.is_nested(type_):  # to repeat a map takes a hundred times as long as to take it
        return one.take(pa.repeat(scalar(0), length))
    return pa.repeat(one[0], length)


def _arrow_value(value: Any, type_: ColumnType) -> Any:
    """Return a column value (see `defaults`) as pyarrow takes it."""
    if value is None:
        return None
    if isinstance(type_, StructColumn):
        return {f.name: _arrow_value(value[f.name], f.type) for f in type_.fields}
    if isinstance(type_, ListColumn):
        return [_arrow_value(item, type_.item) for item in value]
    if isinstance(type_, MapColumn):
        return [(key, _arrow_value(item, type_.value)) for key, item in value.items()]
    return value


def _cast(at: Array, value: CastValue) -> Array:
    wanted = arrow_type(value.type)
    if value.how == "float":
        return at.cast(pa.float32(), safe=False).cast(pa.float64())
    if value.how == "uuid_text":
        texts = [raw and str(uuid.UUID(bytes=raw)) for raw in at.cast(pa.binary()).to_pylist()]
        return pa.array(texts, pa.string())
    if value.how == "uuid_bytes":
        texts = pc.replace_substring(at, "-", "").to_pylist()
        return pa.array([text and bytes.fromhex(text) for text in texts], pa.binary())
    if value.how == "days":
        return at.cast(pa.int32()).cast(wanted)
    if value.how.startswith("timestamp_"):
        number = at.cast(pa.int64())
        millis = value.how == "timestamp_millis"
        return (pc.multiply_checked(number, 1000) if millis else number).cast(wanted)
    if value.how.startswith("unix_"):
        number = at.cast(pa.int64())
        return pc.divide(number, 1000) if value.how == "unix_millis" else number
    return at.cast(wanted, safe=False)
