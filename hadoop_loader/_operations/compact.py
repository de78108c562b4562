"""Compaction: a few large files instead of many small ones, without readers noticing.

Rules:

- A partition is compacted when it has MIN_SMALL_FILES small files. Large files are only linked into
  the new folder, so a byte is rewritten a few times in its life, not at every run.
- Files are never replaced in place. Readers are sent to a new folder, and the old one is removed
  later.
- A load compacts at most MAX_PARTITIONS of the partitions it touched, those with the most small
  files first. The command compacts all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.report import CompactionReport, report_of
from hadoop_loader._commit.roll_forward import projections_of
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._decode.quarantine import QUARANTINE_COLUMNS, QUARANTINE_TABLE
from hadoop_loader._storage.filesystem import AnyPath, file_size
from hadoop_loader._tables.columns import METADATA_COLUMNS
from hadoop_loader._tables.views import file_columns
from hadoop_loader._tasks.rewrite_task import SMALL_FILE_BYTES, RewriteTask

__all__ = ["MAX_PARTITIONS", "MIN_SMALL_FILES", "Compaction"]

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
    ) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)
        self._min_small_files = min_small_files

    def run(self, topic: str | None = None) -> CompactionReport:
        """Compact every partition of every table, or of one topic's."""
        last = self._transaction.recover()
        if last is None:
            return CompactionReport()
        builder = self._transaction.new_commit(last, "compact")
        tables = self._tables(last, topic)
        return self._compact(
            builder, [(table, day) for table in tables for day in builder.days(table)]
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
    ) -> CompactionReport:
        found = [
            c for table, day in sorted(partitions) if (c := self._candidate(builder, table, day))
        ]
        found = sorted(found, key=lambda c: -c.small)[:at_most]
        if not found:
            return CompactionReport()
        with self._transaction.phase("compact"):
            done = self._context.jobs.rewrite(self._jobs(builder, found))
            before = {(c.table, c.day): len(c.sources) for c in found}
            topics = {state.files_table: t for t, state in builder.tables.items()}
            for r in done:
                builder.relocate(r.table, r.day)
                builder.files.extend(r.files)
                if r.table in topics:
                    change = len(r.files) - before[r.table, r.day]
                    builder.add_file_count(topics[r.table], change)
            self._context.on_step("staged")
        commit = self._transaction.commit(builder)
        compacted = CompactionReport(
            commit.number,
            len(done),
            sum(before.values()),
            sum(len(r.files) for r in done),
            round(sum(self._transaction.seconds.values()), 3),
        )
        report = report_of(commit.number, commit, seconds=dict(self._transaction.seconds))
        self._context.log.write_report(commit.number, {**report.as_dict(), **asdict(compacted)})
        return compacted

    def _candidate(self, builder: CommitBuilder, table: str, day: str) -> _Candidate | None:
        sources = builder.sources(table, day)
        small = sum(file_size(path) < SMALL_FILE_BYTES for path in sources)
        if small < self._min_small_files:
            return None
        return _Candidate(table, day, tuple(sources), small)

    def _jobs(self, builder: CommitBuilder, found: Sequence[_Candidate]) -> list[RewriteTask]:
        columns = {QUARANTINE_TABLE: QUARANTINE_COLUMNS}
        names = {QUARANTINE_TABLE: ""}
        for topic, state in builder.tables.items():
            names[state.files_table] = topic
        staging = self._transaction.staging(builder.number)
        for table in {c.table for c in found} - columns.keys():
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
                columns=columns[c.table],
            )
            for c in found
        ]
