"""One rewrite of a partition's files: without some rows, in fewer files, in the latest schema.

Rules:

- It knows nothing of Spark and changes nothing in place: it reads a partition's folder and writes
  into staging.
- A file that does not change is linked, not copied. Rows keep their metadata columns: where a row
  came from, and the load that brought it.
- A file that is written is in the table's latest schema, with defaults filled in (`latest_rows`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hadoop_loader._decode.column_builders import ArrowArray
from hadoop_loader._fetch.row_numbers import order_rows, scalar
from hadoop_loader._storage.failpoints import failpoint
from hadoop_loader._storage.filesystem import (
    AnyPath,
    file_size,
    link_or_copy,
    open_for_write,
    parquet_source,
    sync_file,
)
from hadoop_loader._storage.parquet_encodings import column_encodings
from hadoop_loader._storage.staging import StagedFile, Stager
from hadoop_loader._tables.arrow_types import arrow_schema
from hadoop_loader._tables.columns import WRITTEN_COLUMN, StructField
from hadoop_loader._tasks.conform import conform
from hadoop_loader._tasks.latest_rows import LatestRows, TableHistory
from headworks._audit_counting import WINDOW_MS
from headworks.errors import CorruptError

# Files of at least this size are not merged.
SMALL_FILE_BYTES = 64 * 2**20
_BATCH_ROWS = 100_000
_GROUP_ROWS = 100_000  # a row group is written when it has so many rows, or bytes in memory
_GROUP_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """The rows to drop: of a topic, from an offset of each partition on.

    `topic` is None in the topic's own table, which has no such column. `life`: only of this life.
    """

    topic: str | None
    starts: Mapping[int, int]
    life: int | None = None


@dataclass(frozen=True, slots=True)
class ErasedRows:
    """The rows to drop: those with a value at a path. `topics`: of these, in the quarantine."""

    paths: tuple[tuple[str, ...], ...]  # of one field, which may have been renamed
    value: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """The files to rewrite, and the folder to write to (absolute).

    `merge`: small files become one. `history`: the schemas of the table's files, or None for a
    table of fixed columns. `every`: files in an older schema are rewritten, whatever their size.
    """

    load: int
    topic: str
    table: str
    day: str
    sources: tuple[AnyPath, ...]
    staging: AnyPath
    dropped: DroppedRows | None = None
    columns: tuple[StructField, ...] = ()  # of a table without a history
    history: TableHistory | None = None
    merge: bool = False
    every: bool = False
    erased: ErasedRows | None = None


@dataclass(slots=True)
class RewriteResult:
    """The partition's files in staging; `dropped` counts dropped rows by audit window."""

    table: str
    day: str
    files: list[StagedFile] = field(default_factory=list)
    dropped: dict[int, int] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)  # erased messages of the quarantine
    problem: str | None = None  # why nothing was rewritten; not of a rewind or an erasure


def run_rewrite_task(job: RewriteTask) -> RewriteResult:
    """Run one rewrite. A file that nothing asks to change is only linked."""
    try:
        return _rewrite(job)
    except CorruptError as error:
        if not (job.merge or job.every):
            raise
        return RewriteResult(job.table, job.day, problem=str(error))


def _rewrite(job: RewriteTask) -> RewriteResult:
    stager = Stager(job.staging / uuid.uuid4().hex, job.load)
    done = RewriteResult(job.table, job.day)
    small = []
    for source in job.sources:
        if job.erased is not None or (job.dropped is not None and _may_drop(source, job.dropped)):
            _filter(source, job, stager, done)
        elif job.merge and file_size(source) < SMALL_FILE_BYTES:
            small.append(source)
        elif job.every and job.history is not None and not is_current(source, job.history):
            _merge([source], job, stager)
        else:
            _link(source, job, stager)
        failpoint("rewriting")
    if len(small) == 1 and (job.history is None or is_current(small[0], job.history)):
        _link(small[0], job, stager)
    elif small:
        _merge(small, job, stager)
    done.files.extend(stager.close())
    return done


def _may_drop(source: AnyPath, dropped: DroppedRows) -> bool:
    """Return whether a file may have such rows, by the statistics in its footer."""
    found = _statistics(source, "_offset")
    start = min(dropped.starts.values())
    return any(one is None or int(one.max or 0) >= start for one in found)


def is_current(source: AnyPath, history: TableHistory) -> bool:
    """Return whether all rows of a file are in the latest schema, by its footer's statistics."""
    found = _statistics(source, WRITTEN_COLUMN.name) or _statistics(source, "_load")
    if any(one is None or one.null_count for one in found):
        found = _statistics(source, "_load")
    first = history.current_since
    return all(one is not None and int(one.min or 0) >= first for one in found)


def _statistics(source: AnyPath, column: str) -> list[Any]:
    """Return a column's statistics by row group, None if it has none; [] without the column."""
    meta = _metadata(source)
    names = [meta.schema.column(i).path for i in range(meta.num_columns)]
    if column not in names:
        return []
    found = [meta.row_group(i).column(names.index(column)) for i in range(meta.num_row_groups)]
    each = [one.statistics for one in found]
    return [one if one is not None and one.has_min_max else None for one in each]


def _filter(source: AnyPath, job: RewriteTask, stager: Stager, done: RewriteResult) -> None:
    found: dict[int, int] = {}
    latest = LatestRows(job.history) if job.history is not None and job.erased is not None else None

    def kept() -> Iterator[pa.RecordBatch]:
        for raw in _batches([source]):
            # A field that was renamed, or dropped, is found by either name.
            for batch in [raw] if latest is None else latest.batches(_without(raw)):
                yield _without(batch)

    def _without(batch: pa.RecordBatch) -> pa.RecordBatch:
        gone = (
            _erased_rows(batch, job.erased, done)
            if job.erased is not None
            else _dropped_rows(batch, job.dropped)
        )
        _count_windows(found, batch, gone)
        stay: Any = pc.invert(gone)
        return batch.filter(stay)

    path = stager.path()
    rows = _write(kept(), job, path)
    if not found or not rows:
        path.unlink()
    if not found:
        _link(source, job, stager)
    elif rows:
        _stage(path, rows, job, stager)
    for window, n in found.items():
        done.dropped[window] = done.dropped.get(window, 0) + n


def _erased_rows(batch: pa.RecordBatch, erased: ErasedRows, done: RewriteResult) -> ArrowArray:
    gone = _no_rows(batch)
    for path in erased.paths:
        gone = pc.or_(gone, _has_value(batch, path, erased.value))
    if erased.topics:
        topics = batch.column("topic")
        gone = pc.and_(gone, pc.is_in(topics, value_set=pa.array(erased.topics)))
        for topic in map(str, topics.filter(gone).to_pylist()):
            done.topics[topic] = done.topics.get(topic, 0) + 1
    return gone


def _has_value(batch: pa.RecordBatch, path: tuple[str, ...], value: str) -> ArrowArray:
    values: Any = batch.to_struct_array()
    for name in path:
        known = [f.name.lower() for f in values.type] if pa.types.is_struct(values.type) else []
        if name.lower() not in known:
            return _no_rows(batch)
        values = pc.struct_field(values, [known.index(name.lower())])
    if pa.types.is_binary(values.type):
        same = pc.equal(values, pa.scalar(value.encode()))
    else:
        same = pc.equal(values.cast(pa.string()), pa.scalar(value))
    return pc.fill_null(same, False)


def _dropped_rows(batch: pa.RecordBatch, dropped: DroppedRows | None) -> ArrowArray:
    gone = _no_rows(batch)
    if dropped is None:
        return gone
    partition: Any = batch.column("_partition")
    offset: Any = batch.column("_offset")
    for wanted, start in dropped.starts.items():
        there = pc.and_(
            pc.equal(partition, scalar(wanted)), pc.greater_equal(offset, scalar(start))
        )
        gone = pc.or_(gone, there)
    if dropped.life is not None:
        at = batch.schema.get_field_index("_topic_life")
        lives: Any = pa.nulls(len(gone), pa.int32()) if at < 0 else batch.column(at)
        life: Any = pc.fill_null(lives, 1)
        gone = pc.and_(gone, pc.equal(life, scalar(dropped.life)))
    if dropped.topic is not None:
        same: Any = pc.equal(batch.column("topic"), pa.scalar(dropped.topic))
        of_topic: Any = pc.fill_null(same, False)
        gone = pc.and_(gone, of_topic)
    return gone


def _no_rows(batch: pa.RecordBatch) -> ArrowArray:
    """Return a mask of no row."""
    return pa.repeat(pa.scalar(False), batch.num_rows)


def _count_windows(found: dict[int, int], batch: pa.RecordBatch, gone: ArrowArray) -> None:
    stamps = batch.column("_timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    for window, _, rows in order_rows(stamps.filter(gone), 1000 * WINDOW_MS)[1]:
        found[window * WINDOW_MS] = found.get(window * WINDOW_MS, 0) + rows


def _merge(sources: Sequence[AnyPath], job: RewriteTask, stager: Stager) -> None:
    path = stager.path()
    _stage(path, _write(_batches(sources), job, path), job, stager)


def _write(batches: Iterable[pa.RecordBatch], job: RewriteTask, path: AnyPath) -> int:
    """Write rows in the columns that the table's files have now, and return their number."""
    latest = LatestRows(job.history) if job.history is not None else None
    schema = latest.schema if latest else arrow_schema(job.columns, {})
    changed = (
        each
        for batch in batches
        if batch.num_rows
        for each in (latest.batches(batch) if latest else [conform(batch, job.columns, schema)])
    )
    groups = _row_groups(changed, schema)
    first = next(groups, schema.empty_table())
    settings = column_encodings(first).settings
    rows = 0
    with (
        open_for_write(path) as out,
        pq.ParquetWriter(out, schema, compression="zstd", **settings) as writer,
    ):
        for each in chain([first], groups):
            writer.write_table(each)
            rows += each.num_rows
    return rows


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Put batches together: a row group of a few rows costs a reader as much as a large one."""
    group: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        group.append(batch)
        rows, held = rows + batch.num_rows, held + batch.nbytes
        if rows >= _GROUP_ROWS or held >= _GROUP_BYTES:
            yield pa.Table.from_batches(group, schema)
            group, rows, held = [], 0, 0
    if group:
        yield pa.Table.from_batches(group, schema)


def _batches(sources: Sequence[AnyPath]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files; timestamps are in microseconds, however Spark wrote them."""
    for source in sources:
        with reading(source):
            file = pq.ParquetFile(
                parquet_source(source),
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
            )
            batches = file.iter_batches(_BATCH_ROWS)
        while True:
            with reading(source):
                batch = next(batches, None)
            if batch is None:
                break
            yield batch


@contextmanager
def reading(source: AnyPath) -> Iterator[None]:
    """Raise CorruptError, with the file, for bytes that are no Parquet."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(
            f"{source} cannot be read: {str(error).splitlines()[0]}",
            fix="restore it from a backup of the warehouse (docs/backup.md)",
        ) from None


def _metadata(source: AnyPath) -> Any:
    with reading(source):
        return pq.read_metadata(parquet_source(source))


def _link(source: AnyPath, job: RewriteTask, stager: Stager) -> None:
    path = stager.path()
    link_or_copy(source, path)
    _stage(path, _metadata(source).num_rows, job, stager, durable=True)


def _stage(
    path: AnyPath, rows: int, job: RewriteTask, stager: Stager, *, durable: bool = False
) -> None:
    if not durable:
        sync_file(path)
    stager.add(
        StagedFile(str(path), job.topic, job.table, job.day, path.name, rows, file_size(path))
    )
