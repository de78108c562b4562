"""One rewrite of a partition's files: without replaced rows, or with fewer and larger files.

Rules:

- It knows nothing of Spark and changes nothing in place: it reads a partition's folder and writes
  into staging.
- A file that does not change is linked, not copied. Rows keep their metadata columns: where a row
  came from, and the load that projected it, which tells the view how to show it.
- Files of several schemas become one file in the table's columns. A column that a file lacks is
  null, as it is when the table reads the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hadoop_loader._storage.failpoints import failpoint
from hadoop_loader._storage.filesystem import (
    AnyPath,
    file_size,
    link_or_copy,
    open_for_write,
    parquet_source,
    sync_file,
)
from hadoop_loader._storage.staging import StagedFile, Stager
from hadoop_loader._tables.arrow_types import arrow_type
from hadoop_loader._tables.columns import StructField
from hadoop_loader._tasks.conform import conform
from headworks._audit_counting import WINDOW_MS

__all__ = ["SMALL_FILE_BYTES", "DroppedRows", "RewriteResult", "RewriteTask", "run_rewrite_task"]

# Files of at least this size are not merged.
SMALL_FILE_BYTES = 64 * 2**20
_BATCH_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """The rows to drop: of a topic, from an offset of each partition on.

    `topic` is None in the topic's own table, which has no such column.
    """

    topic: str | None
    starts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """The files to rewrite, and the folder to write to (absolute).

    With `columns`, small files are merged into one with these columns; otherwise files stay apart.
    """

    load: int
    topic: str
    table: str
    day: str
    sources: tuple[AnyPath, ...]
    staging: AnyPath
    dropped: DroppedRows | None = None
    columns: tuple[StructField, ...] | None = None


@dataclass(slots=True)
class RewriteResult:
    """The partition's files in staging; `dropped` counts dropped rows by audit window."""

    table: str
    day: str
    files: list[StagedFile] = field(default_factory=list)
    dropped: dict[int, int] = field(default_factory=dict)


def run_rewrite_task(job: RewriteTask) -> RewriteResult:
    """Run one rewrite. Without dropped rows or columns, the files are only linked."""
    stager = Stager(job.staging / uuid.uuid4().hex, job.load)
    done = RewriteResult(job.table, job.day)
    small = []
    for source in job.sources:
        if job.dropped is not None and _may_drop(source, job.dropped):
            _filter(source, job, stager, done)
        elif job.columns is not None and file_size(source) < SMALL_FILE_BYTES:
            small.append(source)
        else:
            _link(source, job, stager)
        failpoint("rewriting")
    if small and job.columns is not None:
        _merge(small, job.columns, job, stager)
    done.files.extend(stager.close())
    return done


def _may_drop(source: AnyPath, dropped: DroppedRows) -> bool:
    """Return whether a file may have such rows, by the statistics in its footer."""
    meta = pq.read_metadata(parquet_source(source))
    names = [meta.schema.column(i).path for i in range(meta.num_columns)]
    at = names.index("_offset")
    for i in range(meta.num_row_groups):
        found = meta.row_group(i).column(at).statistics
        if found is None or not found.has_min_max:
            return True
        if int(found.max or 0) >= min(dropped.starts.values()):
            return True
    return False


def _filter(source: AnyPath, job: RewriteTask, stager: Stager, done: RewriteResult) -> None:
    assert job.dropped is not None
    file = _open_parquet(source)
    path, rows = stager.path(), 0
    found: dict[int, int] = {}
    with (
        open_for_write(path) as out,
        pq.ParquetWriter(out, file.schema_arrow, compression="zstd", store_schema=False) as writer,
    ):
        for batch in file.iter_batches(_BATCH_ROWS):
            gone = _dropped_rows(batch, job.dropped)
            _count_windows(found, batch, gone)
            kept = batch.filter(pa.array(~gone))
            if kept.num_rows:
                writer.write_batch(kept)
                rows += kept.num_rows
    if not found or not rows:
        path.unlink()
    if not found:
        _link(source, job, stager)
    elif rows:
        _stage(path, rows, job, stager)
    for window, n in found.items():
        done.dropped[window] = done.dropped.get(window, 0) + n


def _dropped_rows(batch: pa.RecordBatch, dropped: DroppedRows) -> npt.NDArray[np.bool_]:
    partition = batch.column("_partition").to_numpy()
    offset = batch.column("_offset").to_numpy()
    gone = np.zeros(batch.num_rows, np.bool_)
    for wanted, start in dropped.starts.items():
        gone |= (partition == wanted) & (offset >= start)
    if dropped.topic is not None:
        same = pc.equal(batch.column("topic"), pa.scalar(dropped.topic))
        gone &= same.to_numpy(zero_copy_only=False).astype(np.bool_)
    return gone


def _count_windows(
    found: dict[int, int], batch: pa.RecordBatch, gone: npt.NDArray[np.bool_]
) -> None:
    stamps = batch.column("_timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    windows = stamps.to_numpy(zero_copy_only=False)[gone] // 1000 // WINDOW_MS * WINDOW_MS
    for window, n in zip(*np.unique(windows, return_counts=True), strict=True):
        found[int(window)] = found.get(int(window), 0) + int(n)


def _merge(
    sources: Sequence[AnyPath], columns: Sequence[StructField], job: RewriteTask, stager: Stager
) -> None:
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in columns])
    path, rows = stager.path(), 0
    with (
        open_for_write(path) as out,
        pq.ParquetWriter(out, schema, compression="zstd", store_schema=False) as writer,
    ):
        for batch in _batches(sources):
            writer.write_batch(conform(batch, columns, schema))
            rows += batch.num_rows
    _stage(path, rows, job, stager)


def _batches(sources: Sequence[AnyPath]) -> Iterator[pa.RecordBatch]:
    for source in sources:
        yield from _open_parquet(source).iter_batches(_BATCH_ROWS)


def _open_parquet(source: AnyPath) -> pq.ParquetFile:
    """Open a file with timestamps in microseconds, in whatever form Spark wrote them."""
    return pq.ParquetFile(parquet_source(source), coerce_int96_timestamp_unit="us")


def _link(source: AnyPath, job: RewriteTask, stager: Stager) -> None:
    path = stager.path()
    link_or_copy(source, path)
    _stage(path, pq.read_metadata(parquet_source(source)).num_rows, job, stager, durable=True)


def _stage(
    path: AnyPath, rows: int, job: RewriteTask, stager: Stager, *, durable: bool = False
) -> None:
    if not durable:
        sync_file(path)
    stager.add(
        StagedFile(str(path), job.topic, job.table, job.day, path.name, rows, file_size(path))
    )
