"""Rows of an older file in the columns of its table, as Spark would read them.

Rules: members are matched by name, ignoring case. A missing member is null, and a null struct stays
null. Types change only as `widening` lets a table change, so no value changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hadoop_loader._tables.arrow_types import arrow_type
from hadoop_loader._tables.columns import (
    ColumnType,
    ListColumn,
    MapColumn,
    StructColumn,
    StructField,
)


def conform(
    batch: pa.RecordBatch, columns: Sequence[StructField], schema: pa.Schema
) -> pa.RecordBatch:
    """Return `batch` in `columns`, whose Arrow form is `schema`."""
    known = {name.lower(): i for i, name in enumerate(batch.schema.names)}
    arrays = []
    for column in columns:
        at = known.get(column.name.lower())
        if at is None:
            arrays.append(pa.nulls(batch.num_rows, arrow_type(column.type)))
        else:
            arrays.append(conform_array(batch.column(at), column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def conform_array(array: Any, target: ColumnType) -> Any:
    """Return an array in exactly the Arrow type of a column."""
    wanted = arrow_type(target)
    if array.type == wanted:
        return array
    if isinstance(target, StructColumn):
        return _struct(array, target, wanted)
    if isinstance(target, ListColumn):
        whole = whole_array(array)
        items = conform_array(whole.values, target.item)
        return pa.ListArray.from_arrays(whole.offsets, items, type=wanted, mask=_nulls(whole))
    if isinstance(target, MapColumn):
        whole = whole_array(array)
        items = conform_array(whole.items, target.value)
        entries = pa.StructArray.from_arrays(
            [whole.keys.cast(pa.string()), items],
            fields=[wanted.key_field, wanted.item_field],
        )
        return pa.Array.from_buffers(
            wanted, len(whole), whole.buffers()[:2], whole.null_count, children=[entries]
        )
    # Bytes that are not UTF-8 stay as they are, as in Spark.
    return array.cast(wanted, safe=not pa.types.is_binary(array.type))


def _struct(array: Any, target: StructColumn, wanted: Any) -> Any:
    known = {array.type.field(i).name.lower(): i for i in range(array.type.num_fields)}
    members = []
    for f in target.fields:
        at = known.get(f.name.lower())
        members.append(
            pa.nulls(len(array), arrow_type(f.type))
            if at is None
            else conform_array(pc.struct_field(array, [at]), f.type)
        )
    return pa.StructArray.from_arrays(members, fields=list(wanted), mask=_nulls(array))


def whole_array(array: Any) -> Any:
    """Return a list or map array that is no slice of another, so that its offsets begin at 0."""
    return pc.take(array, pa.array(range(len(array)), pa.int64())) if array.offset else array


def _nulls(array: Any) -> Any:
    return array.is_null() if array.null_count else None
