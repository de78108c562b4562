"""Which columns of a Parquet file get a dictionary: those whose values repeat.

Rules: a sample of the rows decides, for each leaf column. A dictionary of values that do not repeat
costs time and bytes, and Parquet then drops it. Readers see no difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLE_ROWS = 250
_MAX_DISTINCT_SHARE = 0.5  # of the sample, at most


def dictionary_columns(table: pa.Table) -> list[str]:
    """Return Parquet's names of the leaf columns whose values repeat."""
    sample = table.slice(0, _SAMPLE_ROWS).combine_chunks()
    return [
        path
        for name, column in zip(table.column_names, sample.columns, strict=True)
        for chunk in column.chunks
        for path, values in _leaves(name, chunk)
        if _count_distinct(values) <= _MAX_DISTINCT_SHARE * len(values)
    ]


def _leaves(path: str, array: Any) -> Iterator[tuple[str, Any]]:
    if pa.types.is_struct(array.type):
        for field, child in zip(array.type, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif pa.types.is_list(array.type):
        yield from _leaves(f"{path}.list.element", array.flatten())
    elif pa.types.is_map(array.type):
        yield from _leaves(f"{path}.key_value.key", array.keys)
        yield from _leaves(f"{path}.key_value.value", array.items)
    else:
        yield path, array.slice(0, _SAMPLE_ROWS)  # keys and items are those of all rows


def _count_distinct(array: Any) -> int:
    return int(pc.count_distinct(array).as_py())
