"""How the columns of a Parquet file are written: dictionaries, compression, statistics, and pages.

Rules:

- A sample of the rows decides, for each leaf column. Columns whose values repeat get a dictionary.
  A dictionary of values that do not repeat costs time and bytes, and Parquet then drops it.
- Columns are compressed with zstd, except those with a small dictionary in a file of few rows. To
  compress a page costs some 12 us whatever its size. That is a quarter of the time of writing such
  a file, and saves 5 % of its bytes.
- A file of very few rows has no dictionaries. To look for repeated values takes a third of the time
  of writing 1,500 rows. Dictionaries take another tenth, and save a tenth of the bytes.
- Such a file is compressed with snappy, as by Spark. zstd builds its tables for every page, and
  takes half as long again. Compaction merges these files, with dictionaries and zstd.
- A page ends at a megabyte, and not at Arrow's 20,000 rows. Pages of few bytes cost time, and zstd
  finds fewer repetitions in them: page views take a third less with larger ones.
- A dictionary that may become large is compressed: Parquet gives it up at 1 MB, and writes the rest
  of the values as they are.
- Items, keys, and values of lists and maps get no statistics. No reader can skip rows by them, and
  they would cost a twentieth of the time of writing page views.
- Readers see no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

Codec = Literal["gzip", "brotli", "lz4", "zstd", "snappy", "none"]  # as pyarrow names them

_SAMPLE_ROWS = 250
_MAX_DISTINCT_SHARE = 0.5  # of the sample, at most
_FEW_ROWS = 20_000
_VERY_FEW_ROWS = 5_000
_SMALL_DICTIONARY_BYTES = 1 << 18
_MAX_PAGE_ROWS = 1 << 20
# Arrow looks at a page's size after so many rows: a few megabytes of them, within these bounds.
_MIN_LOOK_ROWS, _MAX_LOOK_ROWS = 1 << 10, 1 << 16
_LOOK_BYTES = 1 << 22
_EVERY_FILE: Mapping[str, Any] = {"store_schema": False, "write_page_checksum": True}


@dataclass(frozen=True, slots=True)
class ColumnEncodings:
    """Leaf columns, by Parquet's names: all, and the bytes a row that dictionaries may grow by."""

    leaves: tuple[str, ...]
    statistics: tuple[str, ...]  # those with a least and a greatest value, and a count of nulls
    dictionary_bytes: Mapping[str, float]  # of those with a dictionary
    row_bytes: int  # of a row in memory, at least 1

    @property
    def settings(self) -> dict[str, Any]:
        """pyarrow's settings for a larger file, but for its compression."""
        look = max(_MIN_LOOK_ROWS, min(_MAX_LOOK_ROWS, _LOOK_BYTES // self.row_bytes))
        return {
            **_EVERY_FILE,
            "use_dictionary": list(self.dictionary_bytes),
            "write_statistics": list(self.statistics),
            "max_rows_per_page": _MAX_PAGE_ROWS,
            "write_batch_size": look,
        }

    def compression(self, rows: int) -> dict[str, Codec]:
        """Return the codecs of a larger file of so many rows, by the leaf columns that have one."""
        most = _SMALL_DICTIONARY_BYTES if rows <= _FEW_ROWS else -1
        growth = self.dictionary_bytes
        plain = {leaf for leaf in growth if growth[leaf] * rows <= most}
        return dict.fromkeys((leaf for leaf in self.leaves if leaf not in plain), "zstd")


def very_few(rows: int) -> bool:
    """Return whether fixed costs are most of the cost of a file with so many rows."""
    return rows <= _VERY_FEW_ROWS


class FileSettings:
    """pyarrow's settings for files with rows like those of `table`."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._encodings: ColumnEncodings | None = None  # sampled when a file needs them

    def of(self, rows: int) -> dict[str, Any]:
        """Return the settings of a file with so many rows."""
        if very_few(rows):
            return {**_EVERY_FILE, "use_dictionary": False, "compression": "snappy"}
        if self._encodings is None:
            self._encodings = column_encodings(self._table)
        return {**self._encodings.settings, "compression": self._encodings.compression(rows)}


def column_encodings(table: pa.Table) -> ColumnEncodings:
    """Return how to write the leaf columns of a table."""
    sample = table.slice(0, _SAMPLE_ROWS).combine_chunks()
    leaves: list[str] = []
    single: list[str] = []
    growth: dict[str, float] = {}
    for name, column in zip(table.column_names, sample.columns, strict=True):
        for chunk in column.chunks or [pa.array([], column.type)]:
            for path, values, repeated in _leaves(name, chunk):
                leaves.append(path)
                single += [] if repeated else [path]
                distinct, count = _count_distinct(values), max(1, len(values))
                if distinct <= _MAX_DISTINCT_SHARE * len(values):
                    growth[path] = values.nbytes / count * distinct / count
    row_bytes = table.nbytes // max(1, table.num_rows) + 1
    return ColumnEncodings(tuple(leaves), tuple(single), growth, row_bytes)


def _leaves(path: str, array: Any, repeated: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """Yield (name, values, whether a row may have several) of the leaf columns of a column."""
    if not array.type.num_fields:
        # Keys and items are those of all rows.
        values = array if len(array) <= _SAMPLE_ROWS else array.slice(0, _SAMPLE_ROWS)
        yield path, values, repeated
    elif pa.types.is_struct(array.type):
        for field, child in zip(array.type, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child, repeated)
    elif pa.types.is_list(array.type):
        yield from _leaves(f"{path}.list.element", array.flatten(), True)
    else:
        assert pa.types.is_map(array.type)
        yield from _leaves(f"{path}.key_value.key", array.keys, True)
        yield from _leaves(f"{path}.key_value.value", array.items, True)


def _count_distinct(array: Any) -> int:
    return int(pc.count_distinct(array).as_py())
