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

from hadoop_loader._commit.commit_builder import Draft
from hadoop_loader._commit.commit_log import Commit, TableState
from hadoop_loader._commit.report import LoadReport, report_of
from hadoop_loader._commit.roll_forward import history_of
from hadoop_loader._commit.topic_plans import versions_of
from hadoop_loader._commit.transaction import Parts, Progress, Work
from hadoop_loader._storage.filesystem import (
    Place,
    matching,
    readable,
    remove,
    remove_empty,
    size_of,
    sync_file,
    sync_folder,
)
from hadoop_loader._storage.staging import StagedFile
from hadoop_loader._tables.columns import PARTITION, table_columns
from hadoop_loader._tables.sql_literals import text
from hadoop_loader._tables.views import Projection, rebuild_query
from hadoop_loader._tasks.load_task import Writer
from headworks.errors import CorruptError, UsageError
from headworks.schema import parse, subject_of

__all__ = ["REBUILD", "Rebuilding"]

REBUILD = ".rebuild"


class Rebuilding:
    """One rebuild with `parts`."""

    def __init__(self, parts: Parts, progress: Progress | None = None) -> None:
        self._parts = parts
        self._work = Work(parts, progress)
        self._progress = progress

    def run(self, topic: str) -> LoadReport:
        """Rebuild a topic's table; IncompatibleError, naming the column, for what cannot be."""
        last = self._work.recover()
        state = last.tables.get(topic) if last else None
        if last is None or state is None:
            raise UsageError(
                f"topic {topic} has no table in {self._parts.root}",
                fix="`headworks load status` lists those that have one",
            )
        latest = self._latest(topic)
        key = self._parts.log.keep_schema(latest.text)
        folder = self._parts.root / REBUILD / state.table
        last = self._forget_others(folder, key, last)
        draft = self._work.draft(last, "rebuild")
        query = self._query(state, latest, draft.number)
        self._parts.reach("planned")
        with self._work.phase("rewrite"):
            for day in draft.days(state.files_table):
                self._day(draft, topic, state, day, query, folder / key)
        taken = {name for s in last.tables.values() for name in (s.table, s.files_table)}
        new = f"{state.table}__{draft.number}"
        while new in taken:  # a topic can be called that
            new += "_"
        draft.files = [replace(file, table=new) for file in draft.files]
        draft.retired_tables.append(state.files_table)
        draft.forget_layout(state.files_table)
        draft.tables[topic] = replace(
            state,
            source=new,
            projections=[[draft.number, latest.version, latest.schema_id, key]],
            files=len(draft.files),
        )
        self._parts.reach("staged")
        # All of it is for this number or an earlier one: nobody can commit it after this one.
        used = matching(folder, "*/*")
        commit = self._work.commit(draft)
        for path in used:
            remove(path)
        remove_empty(folder / key)
        remove_empty(folder)
        report = report_of(commit.number, commit, seconds=dict(self._work.seconds))
        self._parts.log.keep_report(commit.number, report.as_dict())
        return report

    def _latest(self, topic: str) -> Writer:
        versions = versions_of(topic, self._parts.versions([topic]))
        if not versions:
            raise UsageError(
                f"topic {topic} has no schema any more",
                fix=f"register one as {subject_of(topic)}",
            )
        return versions[-1]

    def _query(self, state: TableState, latest: Writer, number: int) -> str:
        schema = parse(latest.text, strict=False)
        table_columns(schema)
        source = self._parts.catalog.source_of(state.files_table)
        history = history_of(state, self._parts.log)
        return rebuild_query(source, history, Projection(number, latest.version, schema))

    def _day(
        self, draft: Draft, topic: str, state: TableState, day: str, query: str, folder: Place
    ) -> None:
        """One partition: done before, or to do."""
        sources = draft.sources(state.files_table, day)
        if not sources:
            return
        names = "\n".join(str(path) for path in sources)
        begun = f"{day}-{hashlib.sha256(names.encode()).hexdigest()[:16]}-"
        done = self._done_before(folder, begun)
        if done is None:
            done = folder / f"{begun}{self._work.own}"
            folder.mkdir(parents=True, exist_ok=True)
            self._parts.jobs.export(f"{query} WHERE {PARTITION} = {text(day)}", done)
        rows = 0
        for path in matching(done, "part-*.parquet"):
            sync_file(path)
            n = pq.read_metadata(readable(path)).num_rows
            name = f"load-{draft.number:08d}-{uuid.uuid4().hex[:12]}.parquet"
            rows += n
            draft.files.append(StagedFile(str(path), topic, "", day, name, n, size_of(path)))
        sync_folder(done)
        expected = sum(pq.read_metadata(readable(path)).num_rows for path in sources)
        if rows != expected:
            remove(done)
            raise CorruptError(
                f"partition {day} of {state.table} has {expected} rows, and {rows} were rewritten; "
                "nothing is changed",
                fix="rebuild again",
            )

    def _done_before(self, folder: Place, begun: str) -> Place | None:
        """What an earlier rebuild has finished of a partition; what it has not, is removed."""
        for path in matching(folder, f"{begun}*"):
            if (path / "_SUCCESS").exists():
                return path
            if self._parts.sole:
                remove(path)
        return None

    def _forget_others(self, folder: Place, key: str, last: Commit) -> Commit:
        """Remove what an earlier rebuild left that was for another schema; the last commit."""
        others = [path for path in matching(folder, "*") if path.name != key]
        if others:
            last = self._work.supersede(last)
        for path in others:
            remove(path)
        return last
