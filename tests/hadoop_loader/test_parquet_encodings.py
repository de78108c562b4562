"""How columns are written: dictionaries and compression by column, and the same rows back."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hadoop_loader._storage.parquet_encodings import FileSettings, column_encodings
from hadoop_loader._storage.staging import write_parquet

pytestmark = pytest.mark.unit


def rows(count: int) -> pa.Table:
    names = [["a", "b", None][n % 3] for n in range(count)]
    return pa.table(
        {
            "own": [str(uuid.UUID(int=n << 64 | n)) for n in range(count)],
            "with.dot": pa.array([1] * count),
            "person": [{"name": name, "tags": [name, "x"]} for name in names],
            "by": pa.array([[("key", n)] for n in range(count)], pa.map_(pa.string(), pa.int64())),
            "nothing": pa.nulls(count, pa.string()),
            "none": pa.array([[]] * count, pa.list_(pa.float64())),
        }
    )


def written(table: pa.Table) -> tuple[pa.Table, dict[str, tuple[str, bool]]]:
    """The rows that are read back, and (codec, has a dictionary) of each leaf column."""
    out = io.BytesIO()
    write_parquet(table, out, FileSettings(table))
    file: Any = pq.ParquetFile(io.BytesIO(out.getvalue()), page_checksum_verification=True)
    group = file.metadata.row_group(0)
    columns = map(group.column, range(group.num_columns))
    found = {c.path_in_schema: (c.compression, c.has_dictionary_page) for c in columns}
    return file.read(), found


def test_a_file_of_very_few_rows_has_no_dictionaries() -> None:
    table = rows(5_000)
    back, columns = written(table)
    assert back.equals(table)
    assert set(columns.values()) == {("SNAPPY", False)}


def test_repeated_values_get_a_dictionary_and_no_compression_in_a_small_file() -> None:
    table = rows(5_001)
    back, columns = written(table)
    assert back.equals(table)
    assert columns == {
        "own": ("ZSTD", False),
        "with.dot": ("UNCOMPRESSED", True),
        "person.name": ("UNCOMPRESSED", True),
        "person.tags.list.element": ("UNCOMPRESSED", True),
        "by.key_value.key": ("UNCOMPRESSED", True),
        "by.key_value.value": ("ZSTD", False),
        "nothing": ("UNCOMPRESSED", True),
        "none.list.element": ("UNCOMPRESSED", True),
    }


def test_every_column_of_a_large_file_is_compressed() -> None:
    table = rows(20_001)
    back, columns = written(table)
    assert back.equals(table)
    assert {codec for codec, _ in columns.values()} == {"ZSTD"}
    assert columns["person.name"] == ("ZSTD", True)


def test_a_dictionary_that_may_become_large_is_compressed() -> None:
    """Parquet gives such a dictionary up, and writes the values as they are."""
    texts = [f"{n // 2:06}" * 100 for n in range(6000)]
    table = pa.table({"text": texts, "kind": ["a", "b"] * 3000})
    back, columns = written(table)
    assert back.equals(table)
    assert columns == {"text": ("ZSTD", True), "kind": ("UNCOMPRESSED", True)}


def test_only_values_of_which_a_row_has_several_get_no_statistics() -> None:
    out = io.BytesIO()
    table = rows(6000)
    write_parquet(table, out, FileSettings(table))
    group = pq.ParquetFile(io.BytesIO(out.getvalue())).metadata.row_group(0)
    columns = map(group.column, range(group.num_columns))
    assert {c.path_in_schema for c in columns if not c.is_stats_set} == {
        "person.tags.list.element",
        "by.key_value.key",
        "by.key_value.value",
        "none.list.element",
    }


def test_pages_end_at_a_size_and_not_at_a_number_of_rows() -> None:
    table = pa.table({"count": [n % 1000 for n in range(100_000)]})
    small, large = io.BytesIO(), io.BytesIO()
    write_parquet(table, large, FileSettings(table))
    pq.write_table(table, small, compression="zstd", max_rows_per_page=20_000)
    assert 2 * large.tell() < small.tell()


@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_long_values_do_not_make_a_page_of_many_megabytes(size: int) -> None:
    table = pa.table({"text": ["x" * size] * 200})
    rows = column_encodings(table).settings["write_batch_size"]
    assert rows * size <= 1 << 22 or rows == 1 << 10


def test_a_table_without_rows() -> None:
    out = io.BytesIO()
    table = rows(3).slice(0, 0)
    write_parquet(table, out, FileSettings(table))
    assert pq.ParquetFile(io.BytesIO(out.getvalue())).read().equals(table)
