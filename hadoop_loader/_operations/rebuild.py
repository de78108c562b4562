"""A rebuild: a topic's table rewritten in its latest schema, for changes no file can follow in
place.

Rules:

- Every value becomes what Avro's schema resolution makes of it, by the same expressions as in the
  topic's view. A change that Avro cannot resolve, or resolves to other values, is refused.
- The new table is written beside the old one. The view then switches to it in one step, so no query
  reads a part of it.
- Finished partitions are kept, so an interrupted rebuild continues. Unfinished ones are in a folder
  that only one loader writes, so an outlived loader cannot damage another's.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace

import pyarrow.parquet as pq

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_record import Commit, TableState
from hadoop_loader._commit.report import LoadReport, report_of
from hadoop_loader._commit.roll_forward import projections_of
from hadoop_loader._commit.topic_plans import require_versions
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._storage.filesystem import (
    AnyPath,
    file_size,
    parquet_source,
    remove_empty,
    remove_tree,
    sorted_glob,
    sync_file,
)
from hadoop_loader._storage.fsync import sync_folder
from hadoop_loader._storage.staging import StagedFile
from hadoop_loader._tables.columns import PARTITION_COLUMN, table_columns
from hadoop_loader._tables.sql_literals import string_literal
from hadoop_loader._tables.views import SchemaProjection, rebuild_query
from hadoop_loader._tasks.load_task import WriterSchema
from headworks.errors import CorruptError, UsageError
from headworks.schema import parse, subject_of

__all__ = ["REBUILD_FOLDER", "Rebuild"]

REBUILD_FOLDER = ".rebuild"


class Rebuild:
    """One rebuild of a topic's table."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)
        self._progress = progress

    def run(self, topic: str) -> LoadReport:
        """Rebuild a topic's table.

        Raises IncompatibleError, with the column, if a value cannot be resolved.
        """
        last = self._transaction.recover()
        state = last.tables.get(topic) if last else None
        if last is None or state is None:
            raise UsageError(
                f"topic {topic} has no table in {self._context.root}",
                fix="`headworks load status` lists those that have one",
            )
        latest = self._latest(topic)
        key = self._context.log.schemas.put(latest.text)
        folder = self._context.root / REBUILD_FOLDER / state.table
        last = self._forget_others(folder, key, last)
        builder = self._transaction.new_commit(last, "rebuild")
        query = self._query(state, latest, builder.number)
        self._context.on_step("planned")
        with self._transaction.phase("rewrite"):
            for day in builder.days(state.files_table):
                self._day(builder, topic, state, day, query, folder / key)
        taken = {name for s in last.tables.values() for name in (s.table, s.files_table)}
        new = f"{state.table}__{builder.number}"
        while new in taken:  # a topic may have that name
            new += "_"
        builder.files = [replace(file, table=new) for file in builder.files]
        builder.retired_tables.append(state.files_table)
        builder.drop_layout(state.files_table)
        builder.tables[topic] = replace(
            state,
            source=new,
            projections=[[builder.number, latest.version, latest.schema_id, key]],
            files=len(builder.files),
        )
        self._context.on_step("staged")
        # All of it was written for this number or an earlier one: no other loader can commit it.
        used = sorted_glob(folder, "*/*")
        commit = self._transaction.commit(builder)
        for path in used:
            remove_tree(path)
        remove_empty(folder / key)
        remove_empty(folder)
        report = report_of(commit.number, commit, seconds=dict(self._transaction.seconds))
        self._context.log.write_report(commit.number, report.as_dict())
        return report

    def _latest(self, topic: str) -> WriterSchema:
        versions = require_versions(topic, self._context.versions([topic]))
        if not versions:
            raise UsageError(
                f"topic {topic} has no schema any more",
                fix=f"register one as {subject_of(topic)}",
            )
        return versions[-1]

    def _query(self, state: TableState, latest: WriterSchema, number: int) -> str:
        schema = parse(latest.text, strict=False)
        table_columns(schema)
        source = self._context.catalog.source_of(state.files_table)
        history = projections_of(state, self._context.log)
        return rebuild_query(source, history, SchemaProjection(number, latest.version, schema))

    def _day(
        self,
        builder: CommitBuilder,
        topic: str,
        state: TableState,
        day: str,
        query: str,
        folder: AnyPath,
    ) -> None:
        """Add the files of one partition, and rewrite it unless an earlier rebuild has."""
        sources = builder.sources(state.files_table, day)
        if not sources:
            return
        names = "\n".join(str(path) for path in sources)
        begun = f"{day}-{hashlib.sha256(names.encode()).hexdigest()[:16]}-"
        done = self._done_before(folder, begun)
        if done is None:
            done = folder / f"{begun}{self._transaction.writer_id}"
            folder.mkdir(parents=True, exist_ok=True)
            self._context.jobs.export(
                f"{query} WHERE {PARTITION_COLUMN} = {string_literal(day)}", done
            )
        rows = 0
        for path in sorted_glob(done, "part-*.parquet"):
            sync_file(path)
            n = pq.read_metadata(parquet_source(path)).num_rows
            name = f"load-{builder.number:08d}-{uuid.uuid4().hex[:12]}.parquet"
            rows += n
            builder.files.append(StagedFile(str(path), topic, "", day, name, n, file_size(path)))
        sync_folder(done)
        expected = sum(pq.read_metadata(parquet_source(path)).num_rows for path in sources)
        if rows != expected:
            remove_tree(done)
            raise CorruptError(
                f"partition {day} of {state.table} has {expected} rows, and {rows} were rewritten; "
                "nothing is changed",
                fix="rebuild again",
            )

    def _done_before(self, folder: AnyPath, begun: str) -> AnyPath | None:
        """Return the folder of a finished partition, and remove unfinished ones."""
        for path in sorted_glob(folder, f"{begun}*"):
            if (path / "_SUCCESS").exists():
                return path
            if self._context.fenced:
                remove_tree(path)
        return None

    def _forget_others(self, folder: AnyPath, key: str, last: Commit) -> Commit:
        """Remove what an earlier rebuild left for another schema, and return the last commit."""
        others = [path for path in sorted_glob(folder, "*") if path.name != key]
        if others:
            last = self._transaction.fence_other_loaders(last)
        for path in others:
            remove_tree(path)
        return last
