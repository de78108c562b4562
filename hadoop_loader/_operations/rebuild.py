"""A topic's table, written anew in its latest schema: for changes that no file can follow in place.

Rules:

- Every value becomes what Avro makes of it, by the same expressions as in the topic's view; what
  Avro does not resolve, or resolves into other values, is refused and changes nothing.
- A new table beside the old one; the view is sent to it in one step, so nobody ever reads a half.
- Partitions that are done stay done: a rebuild that was interrupted goes on where it was. What is
  not done is in a folder of one loader alone, so one that was outlived cannot spoil another's.
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
from hadoop_loader._tables.columns import PARTITION, table_columns
from hadoop_loader._tables.sql_literals import text
from hadoop_loader._tables.views import Projection, rebuild_query
from hadoop_loader._tasks.load_task import Writer
from headworks.errors import CorruptError, UsageError
from headworks.schema import parse, subject_of

__all__ = ["REBUILD_FOLDER", "Rebuild"]

REBUILD_FOLDER = ".rebuild"


class Rebuild:
    """One rebuild with `parts`."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)
        self._progress = progress

    def run(self, topic: str) -> LoadReport:
        """Rebuild a topic's table; IncompatibleError, naming the column, for what cannot be."""
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
        draft = self._transaction.new_commit(last, "rebuild")
        query = self._query(state, latest, draft.number)
        self._context.on_step("planned")
        with self._transaction.phase("rewrite"):
            for day in draft.days(state.files_table):
                self._day(draft, topic, state, day, query, folder / key)
        taken = {name for s in last.tables.values() for name in (s.table, s.files_table)}
        new = f"{state.table}__{draft.number}"
        while new in taken:  # a topic can be called that
            new += "_"
        draft.files = [replace(file, table=new) for file in draft.files]
        draft.retired_tables.append(state.files_table)
        draft.drop_layout(state.files_table)
        draft.tables[topic] = replace(
            state,
            source=new,
            projections=[[draft.number, latest.version, latest.schema_id, key]],
            files=len(draft.files),
        )
        self._context.on_step("staged")
        # All of it is for this number or an earlier one: nobody can commit it after this one.
        used = sorted_glob(folder, "*/*")
        commit = self._transaction.commit(draft)
        for path in used:
            remove_tree(path)
        remove_empty(folder / key)
        remove_empty(folder)
        report = report_of(commit.number, commit, seconds=dict(self._transaction.seconds))
        self._context.log.write_report(commit.number, report.as_dict())
        return report

    def _latest(self, topic: str) -> Writer:
        versions = require_versions(topic, self._context.versions([topic]))
        if not versions:
            raise UsageError(
                f"topic {topic} has no schema any more",
                fix=f"register one as {subject_of(topic)}",
            )
        return versions[-1]

    def _query(self, state: TableState, latest: Writer, number: int) -> str:
        schema = parse(latest.text, strict=False)
        table_columns(schema)
        source = self._context.catalog.source_of(state.files_table)
        history = projections_of(state, self._context.log)
        return rebuild_query(source, history, Projection(number, latest.version, schema))

    def _day(
        self,
        draft: CommitBuilder,
        topic: str,
        state: TableState,
        day: str,
        query: str,
        folder: AnyPath,
    ) -> None:
        """One partition: done before, or to do."""
        sources = draft.sources(state.files_table, day)
        if not sources:
            return
        names = "\n".join(str(path) for path in sources)
        begun = f"{day}-{hashlib.sha256(names.encode()).hexdigest()[:16]}-"
        done = self._done_before(folder, begun)
        if done is None:
            done = folder / f"{begun}{self._transaction.writer_id}"
            folder.mkdir(parents=True, exist_ok=True)
            self._context.jobs.export(f"{query} WHERE {PARTITION} = {text(day)}", done)
        rows = 0
        for path in sorted_glob(done, "part-*.parquet"):
            sync_file(path)
            n = pq.read_metadata(parquet_source(path)).num_rows
            name = f"load-{draft.number:08d}-{uuid.uuid4().hex[:12]}.parquet"
            rows += n
            draft.files.append(StagedFile(str(path), topic, "", day, name, n, file_size(path)))
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
        """What an earlier rebuild has finished of a partition; what it has not, is removed."""
        for path in sorted_glob(folder, f"{begun}*"):
            if (path / "_SUCCESS").exists():
                return path
            if self._context.fenced:
                remove_tree(path)
        return None

    def _forget_others(self, folder: AnyPath, key: str, last: Commit) -> Commit:
        """Remove what an earlier rebuild left that was for another schema; the last commit."""
        others = [path for path in sorted_glob(folder, "*") if path.name != key]
        if others:
            last = self._transaction.fence_other_loaders(last)
        for path in others:
            remove_tree(path)
        return last
