"""A rebuild: a topic's table rewritten in its latest schema, for changes no file can follow in
place.

Rules:

- Every value becomes what Avro's schema resolution makes of it, by the same rules as in the topic's
  view (`old_rows`). A change that Avro cannot resolve, or resolves to other values, is refused.
- The new table is written beside the old one. The view then switches to it in one step, so no query
  reads a part of it.
- Finished partitions are kept, so an interrupted rebuild continues. Unfinished ones are in a folder
  that only one loader writes, so an outlived loader cannot damage another's.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pyarrow.parquet as pq

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_record import Commit, TableState
from hadoop_loader._commit.registry_subjects import require_versions
from hadoop_loader._commit.report import LoadReport, report_of
from hadoop_loader._commit.table_history import (
    projections_of,
    rebuilt_field_ids,
    sensitive_of,
    table_history,
)
from hadoop_loader._commit.topic_plans import check_metastore_limits
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._operations.refusals import table_of
from hadoop_loader._storage.filesystem import (
    AnyPath,
    file_size,
    parquet_source,
    remove_empty,
    remove_tree,
    sorted_glob,
    write_durably,
)
from hadoop_loader._storage.fsync import sync_folder
from hadoop_loader._storage.staging import StagedFile
from hadoop_loader._tables.old_rows import (
    SchemaProjection,
    check_resolves,
    file_columns,
    row_values,
)
from hadoop_loader._tables.views import view_query
from hadoop_loader._tasks.latest_rows import TableHistory
from hadoop_loader._tasks.load_task import WriterSchema
from hadoop_loader._tasks.rewrite_task import RewriteTask
from headworks.errors import CorruptError, UnreachableError, UsageError
from headworks.schema import parse, subject_of

REBUILD_FOLDER = ".rebuild"
_FINISHED = "_SUCCESS"  # in the folder of a partition that was rewritten
_MAX_TABLE_STEM = 200  # characters: folders take names of 255, metastores of 256
_LOG = logging.getLogger(__name__)


def rebuild_each(
    parts: LoaderContext, topics: Sequence[str], progress: Progress | None
) -> dict[str, str]:
    """Rebuild the tables of these topics; return why, by topic, where it failed.

    A registry or a metastore that does not answer concerns all tables, so its error is raised.
    """
    reasons = {}
    for topic in topics:
        try:
            done = Rebuild(parts, progress).run(topic)
        except UnreachableError:
            raise
        except Exception as error:
            found = parts.table_error(error)
            if found is None:
                raise
            parts.on_step("failed")
            parts.catalog.check()
            reasons[topic] = str(found)
        else:
            _LOG.warning(
                "the table of topic %s was rebuilt by commit %d: it could not follow the latest "
                "schema in place",
                topic,
                done.number,
                extra={"topic": topic, "commit": done.number},
            )
    return reasons


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
        last, state = table_of(self._transaction.recover(), topic, self._context.root)
        self._transaction.failures.require(state.files_table)
        versions = self._versions(topic)
        latest = versions[-1]
        key = self._context.log.schemas.put(latest.text)
        ids = rebuilt_field_ids(state, latest.text, self._context.log)
        folder = self._context.root / REBUILD_FOLDER / state.table
        # An earlier release may have begun with files that have local timestamps in UTC.
        target = f"{key}-local" if ids.local else key
        last = self._forget_others(folder, target, last)
        builder = self._transaction.new_commit(last, "rebuild")
        history = self._history(state, latest, builder.number)
        self._context.on_step("planned")
        with self._transaction.phase("rewrite"):
            self._rewrite(builder, topic, history, folder / target)
        taken = {name for s in last.tables.values() for name in (s.table, s.files_table)}
        new = f"{state.table[:_MAX_TABLE_STEM]}__{builder.number}"
        while new in taken:  # a topic may have that name
            new += "_"
        builder.files = [replace(file, table=new) for file in builder.files]
        builder.retired_tables.append(state.files_table)
        builder.drop_layout(state.files_table)
        builder.tables[topic] = replace(
            state,
            source=new,
            projections=[[builder.number, latest.version, latest.schema_id, key]],
            sensitive=sensitive_of(state, self._context.log, versions),
            marked=True,
            files=len(builder.files),
            field_ids=self._context.log.field_ids.put(ids.text),
        )
        self._context.on_step("staged")
        # All of it was written for this number or an earlier one: no other loader can commit it.
        used = sorted_glob(folder, "*/*")
        commit = self._transaction.commit(builder)
        self._transaction.failures.require(new)
        for path in used:
            remove_tree(path)
        remove_empty(folder / target)
        remove_empty(folder)
        report = report_of(commit.number, commit, seconds=dict(self._transaction.seconds))
        self._context.log.write_report(commit.number, report.as_dict())
        return report

    def _versions(self, topic: str) -> tuple[WriterSchema, ...]:
        versions = require_versions(topic, self._context.versions([topic]))
        if not versions:
            raise UsageError(
                f"topic {topic} has no schema any more",
                fix=f"register one as {subject_of(topic)}",
            )
        return versions

    def _history(self, state: TableState, latest: WriterSchema, number: int) -> TableHistory:
        """Return the schemas of the old files; IncompatibleError if rows cannot follow the latest.

        Also raises SchemaError if no table can hold the latest schema.
        """
        schema = parse(latest.text, strict=False)
        new = SchemaProjection(number, latest.version, schema)
        query = view_query("", [new])
        check_metastore_limits(file_columns([new]), query, embedded=self._context.embedded)
        projections = projections_of(state, self._context.log)
        files = file_columns(projections)
        for projection in projections:
            check_resolves(projection, new)
            row_values(projection.schema, schema, files)
        return table_history(state, self._context.log, number, latest.text)

    def _rewrite(
        self, builder: CommitBuilder, topic: str, history: TableHistory, folder: AnyPath
    ) -> None:
        """Add the files of every partition, and rewrite those that no earlier rebuild has."""
        table = builder.tables[topic].files_table
        sources = {d: found for d in builder.days(table) if (found := builder.sources(table, d))}
        begun = {day: _begun(day, found) for day, found in sources.items()}
        folders = {day: self._done_before(folder, begun[day]) for day in sources}
        left = [day for day, done in folders.items() if done is None]
        for i in range(0, len(left), self._context.tasks):
            jobs = []
            for day in left[i : i + self._context.tasks]:
                folders[day] = staging = folder / f"{begun[day]}{self._transaction.writer_id}"
                jobs.append(
                    RewriteTask(
                        builder.number,
                        topic,
                        table,
                        day,
                        tuple(sources[day]),
                        staging,
                        history=history,
                        every=True,
                    )
                )
            results = self._context.jobs.rewrite(jobs)
            bad = {result.day: result.problem for result in results if result.problem is not None}
            for job in jobs:
                if job.day in bad:
                    remove_tree(job.staging)
                else:
                    write_durably(job.staging / _FINISHED, "")
            for day, problem in bad.items():  # the next rebuild repeats only these
                raise CorruptError(f"partition {day}: {problem}")
        for day, done in folders.items():
            if done is not None:
                self._take_in(builder, topic, table, day, sources[day], done)

    def _take_in(
        self,
        builder: CommitBuilder,
        topic: str,
        table: str,
        day: str,
        sources: Sequence[AnyPath],
        done: AnyPath,
    ) -> None:
        """Add the files of one partition, which are in `done`."""
        rows = 0
        for path in sorted_glob(done, "*/*.parquet"):
            n = pq.read_metadata(parquet_source(path)).num_rows
            name = f"load-{builder.number:08d}-{uuid.uuid4().hex[:12]}.parquet"
            rows += n
            builder.files.append(StagedFile(str(path), topic, "", day, name, n, file_size(path)))
        sync_folder(done)
        expected = sum(pq.read_metadata(parquet_source(path)).num_rows for path in sources)
        if rows != expected:
            remove_tree(done)
            raise CorruptError(
                f"partition {day} of {table} has {expected} rows, and {rows} were rewritten; "
                "nothing is changed",
                fix="rebuild again",
            )

    def _done_before(self, folder: AnyPath, begun: str) -> AnyPath | None:
        """Return the folder of a finished partition, and remove unfinished ones."""
        for path in sorted_glob(folder, f"{begun}*"):
            if (path / _FINISHED).exists():
                return path
            if self._context.fenced:
                remove_tree(path)
        return None

    def _forget_others(self, folder: AnyPath, target: str, last: Commit) -> Commit:
        """Remove what an earlier rebuild left for another target, and return the last commit."""
        others = [path for path in sorted_glob(folder, "*") if path.name != target]
        if others:
            last = self._transaction.fence_other_loaders(last)
        for path in others:
            remove_tree(path)
        return last


def _begun(day: str, sources: Sequence[AnyPath]) -> str:
    """Return how the folder of a partition's rebuilt files begins: other files, another folder."""
    names = "\n".join(str(path) for path in sources)
    return f"{day}-{hashlib.sha256(names.encode()).hexdigest()[:16]}-"
