"""Compaction: a few large files, in the latest schema, without readers noticing.

Rules:

- A partition is compacted when it has MIN_SMALL_FILES small files. Large files are only linked into
  the new folder, so a byte is rewritten a few times in its life, not at every run.
- Every file that is written is in the table's latest schema, with defaults filled in. With `every`,
  all older files are. The view then needs no earlier schema, and becomes a plain SELECT.
- A partition with a file that cannot be read stays as it is, and is reported.
- Files are never replaced in place. Readers are sent to a new folder, and the old one is removed
  later.
- A load compacts at most MAX_PARTITIONS of the partitions it touched, those with the most small
  files first. The command compacts all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.report import CompactionReport, SkippedTopic, report_of
from hadoop_loader._commit.table_history import projections_of, sensitive_of, table_history
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._decode.quarantine import QUARANTINE_COLUMNS, QUARANTINE_TABLE
from hadoop_loader._operations.refusals import table_of
from hadoop_loader._storage.filesystem import AnyPath, file_size
from hadoop_loader._tables.columns import METADATA_COLUMNS
from hadoop_loader._tables.old_rows import file_columns
from hadoop_loader._tasks.latest_rows import TableHistory
from hadoop_loader._tasks.rewrite_task import (
    SMALL_FILE_BYTES,
    RewriteResult,
    RewriteTask,
    is_current,
)
from headworks.errors import CorruptError

MIN_SMALL_FILES = 16
MAX_PARTITIONS = 32


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A partition that is worth a compaction."""

    table: str
    day: str
    sources: tuple[AnyPath, ...]  # its files
    small: int  # how many of them are small


class Compaction:
    """One compaction of partitions with at least `min_small_files` small files."""

    def __init__(
        self,
        parts: LoaderContext,
        progress: Progress | None = None,
        *,
        min_small_files: int = MIN_SMALL_FILES,
        every: bool = False,
    ) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)
        self._min_small_files = min_small_files
        self._every = every  # rewrite all files that are in an older schema
        self._histories: dict[str, TableHistory | None] = {}  # by table over files

    def run(self, topic: str | None = None) -> CompactionReport:
        """Compact every partition of every table, or of one topic's; UsageError if it has none."""
        last = self._transaction.recover()
        if topic is not None:
            last, state = table_of(last, topic, self._context.root)
            self._transaction.failures.require(state.files_table)
        if last is None:
            return CompactionReport()
        builder = self._transaction.new_commit(last, "compact")
        tables = self._tables(last, topic)
        return self._compact(
            builder,
            [(table, day) for table in tables for day in builder.days(table)],
            settled=tables if self._every else (),
        )

    def run_after(self, commit: Commit) -> CompactionReport:
        """Compact the partitions that a load has just written to."""
        builder = self._transaction.new_commit(commit, "compact")
        return self._compact(builder, {(f.table, f.day) for f in commit.files}, MAX_PARTITIONS)

    def _tables(self, last: Commit, topic: str | None) -> list[str]:
        tables = [s.files_table for t, s in last.tables.items() if topic in (None, t)]
        if topic is None and (self._context.root / QUARANTINE_TABLE).is_dir():
            tables.append(QUARANTINE_TABLE)
        return tables

    def _compact(
        self,
        builder: CommitBuilder,
        partitions: Iterable[tuple[str, str]],
        at_most: int | None = None,
        settled: Collection[str] = (),
    ) -> CompactionReport:
        """Compact these partitions; all rows of `settled` tables are then in the latest schema."""
        held = self._transaction.held | self._transaction.failures.errors.keys()
        unread: list[RewriteResult] = []
        found = []
        for table, day in sorted(partitions):
            if table not in held:
                try:
                    found += self._candidates(builder, table, day)
                except CorruptError as error:
                    unread.append(RewriteResult(table, day, problem=str(error)))
        found = sorted(found, key=lambda c: -c.small)[:at_most]
        with self._transaction.phase("compact"):
            each = self._context.jobs.rewrite(self._jobs(builder, found)) if found else []
            unread += [r for r in each if r.problem is not None]
            done = [r for r in each if r.problem is None]
            before = {(c.table, c.day): len(c.sources) for c in found}
            self._take_in(builder, done, before)
            for topic, state in builder.last.tables.items() if builder.last else ():
                table = state.files_table
                if table in {*settled} - held - {r.table for r in unread} and state.field_ids:
                    builder.settle(topic, sensitive_of(state, self._context.log))
        problems = [_problem(builder, r) for r in unread]
        if not done and not builder.settled_tables:
            skipped = self._transaction.skipped_topics(builder.last)
            return CompactionReport(refused=(*skipped, *problems))
        self._context.on_step("staged")
        commit = self._transaction.commit(builder)
        compacted = CompactionReport(
            commit.number,
            len(done),
            sum(before[r.table, r.day] for r in done),
            sum(len(r.files) for r in done),
            round(sum(self._transaction.seconds.values()), 3),
            (*self._transaction.skipped_topics(commit), *problems),
            len(builder.settled_tables),
        )
        report = report_of(commit.number, commit, seconds=dict(self._transaction.seconds))
        self._context.log.write_report(commit.number, {**report.as_dict(), **asdict(compacted)})
        return compacted

    def _take_in(
        self,
        builder: CommitBuilder,
        done: Sequence[RewriteResult],
        before: Mapping[tuple[str, str], int],
    ) -> None:
        topics = {state.files_table: t for t, state in builder.tables.items()}
        for r in done:
            builder.relocate(r.table, r.day)
            builder.files.extend(r.files)
            if r.table in topics:
                builder.add_file_count(topics[r.table], len(r.files) - before[r.table, r.day])

    def _candidates(self, builder: CommitBuilder, table: str, day: str) -> list[_Candidate]:
        """Return a partition, if it is worth a compaction."""
        sources = builder.sources(table, day)
        small = sum(file_size(path) < SMALL_FILE_BYTES for path in sources)
        history = self._history(builder, table)
        enough = small >= self._min_small_files
        if not enough and self._every and history is not None:
            enough = any(not is_current(path, history) for path in sources)
        if not enough:
            return []
        return [_Candidate(table, day, tuple(sources), small)]

    def _history(self, builder: CommitBuilder, table: str) -> TableHistory | None:
        """Return the schemas of a table; None if fixed, or of an earlier release."""
        if table not in self._histories:
            states = [s for s in builder.tables.values() if s.files_table == table and s.field_ids]
            found = [table_history(s, self._context.log, builder.number) for s in states]
            self._histories[table] = next(iter(found), None)
        return self._histories[table]

    def _jobs(self, builder: CommitBuilder, found: Sequence[_Candidate]) -> list[RewriteTask]:
        columns = {QUARANTINE_TABLE: QUARANTINE_COLUMNS}
        names = {QUARANTINE_TABLE: ""}
        for topic, state in builder.tables.items():
            names[state.files_table] = topic
        staging = self._transaction.staging(builder.number)
        for table in {c.table for c in found} - columns.keys():
            if self._history(builder, table) is None:
                history = projections_of(builder.tables[names[table]], self._context.log)
                columns[table] = (*file_columns(history), *METADATA_COLUMNS)
        return [
            RewriteTask(
                builder.number,
                names[c.table],
                c.table,
                c.day,
                c.sources,
                staging,
                columns=columns.get(c.table, ()),
                history=self._history(builder, c.table),
                merge=True,
                every=self._every,
            )
            for c in found
        ]


def _problem(builder: CommitBuilder, r: RewriteResult) -> SkippedTopic:
    """Return the report of a partition that could not be read."""
    topics = {state.files_table: t for t, state in builder.tables.items()}
    reason = f"partition {r.day} stays as it was: {r.problem}"
    return SkippedTopic(topics.get(r.table, r.table), reason)
