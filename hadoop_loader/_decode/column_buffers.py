"""Arrow columns from the buffers that the compiled decoder filled.

Rule: a buffer becomes an Arrow array as it is, without a copy. The validity buffer of a column
without nulls is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from hadoop_loader._decode.column_builders import (
    ArrowArray,
    ColumnNode,
    LeafNode,
    ListNode,
    StructNode,
)
from hadoop_loader._fetch.row_numbers import Buffer
from hadoop_loader._tables.arrow_types import arrow_type

# Of a column: elements, nulls, validity, values or ends, and text.
ColumnBuffers = tuple[int, int, bytes | None, Buffer | None, Buffer | None]


def arrow_arrays(nodes: Sequence[ColumnNode], buffers: Sequence[ColumnBuffers]) -> list[ArrowArray]:
    """Return the columns of a table, from the buffers of all nodes by number."""
    return [_array(node, buffers) for node in nodes]


def _array(node: ColumnNode, buffers: Sequence[ColumnBuffers]) -> ArrowArray:
    count, nulls, validity, cells, text = buffers[node.number]
    type_ = arrow_type(node.type)
    kept = [_buffer(validity)]
    if isinstance(node, LeafNode):
        kept += [_buffer(each) for each in (cells, text) if each is not None]
        return pa.Array.from_buffers(type_, count, kept, nulls)
    if isinstance(node, StructNode):
        children = [_array(member, buffers) for member in node.members]
        return pa.Array.from_buffers(type_, count, kept, nulls, children=children)
    if isinstance(node, ListNode):
        entries = _array(node.item, buffers)
    else:
        make: Any = pa.StructArray.from_arrays
        both = [_array(node.key, buffers), _array(node.value, buffers)]
        entries = make(both, fields=[type_.key_field, type_.item_field])
    kept.append(_buffer(cells))
    return pa.Array.from_buffers(type_, count, kept, nulls, children=[entries])


def _buffer(content: Buffer | None) -> Any:
    return None if content is None else pa.py_buffer(content)
