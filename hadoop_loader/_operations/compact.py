"""Few large files instead of many small ones, without a reader noticing.

Rules:

- A partition is compacted when it has WORTH_IT small files; large ones stay as they are (linked
  into the new folder), so a byte is rewritten a few times in its life, not at every run.
- In place is never: a new folder, then readers are sent there, the old one goes later.
- A run compacts what its load has touched, AT_ONCE partitions at most, those with the most small
  files first; by hand everything is looked at.
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
from hadoop_loader._tables.columns import METADATA
from hadoop_loader._tables.views import file_columns
from hadoop_loader._tasks.rewrite_task import SMALL, Rewrite

__all__ = ["MAX_PARTITIONS", "MIN_SMALL_FILES", "Compaction"]

MIN_SMALL_FILES = 16
MAX_PARTITIONS = 32


@dataclass(frozen=True, slots=True)
class _Candidate:
    table: str
    day: str
    sources: tuple[AnyPath, ...]
    small: int


class Compaction:
    """One compaction; `worth_it` small files make one."""

    def __init__(
        self,
        parts: LoaderContext,
        progress: Progress | None = None,
        *,
        worth_it: int = MIN_SMALL_FILES,
    ) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)
        self._worth_it = worth_it

    def run(self, topic: str | None = None) -> CompactionReport:
        """Every partition of every table, or of one topic's."""
        last = self._transaction.recover()
        if last is None:
            return CompactionReport()
        draft = self._transaction.new_commit(last, "compact")
        tables = self._tables(last, topic)
        return self._compact(draft, [(table, day) for table in tables for day in draft.days(table)])

    def run_after(self, commit: Commit) -> CompactionReport:
        """The partitions that a load has just put files into."""
        draft = self._transaction.new_commit(commit, "compact")
        return self._compact(draft, {(f.table, f.day) for f in commit.files}, MAX_PARTITIONS)

    def _tables(self, last: Commit, topic: str | None) -> list[str]:
        tables = [s.files_table for t, s in last.tables.items() if topic in (None, t)]
        if topic is None and (self._context.root / QUARANTINE_TABLE).is_dir():
            tables.append(QUARANTINE_TABLE)
        return tables

    def _compact(
        self,
        draft: CommitBuilder,
        partitions: Iterable[tuple[str, str]],
        at_most: int | None = None,
    ) -> CompactionReport:
        found = [
            c for table, day in sorted(partitions) if (c := self._candidate(draft, table, day))
        ]
        found = sorted(found, key=lambda c: -c.small)[:at_most]
        if not found:
            return CompactionReport()
        with self._transaction.phase("compact"):
            done = self._context.jobs.rewrite(self._jobs(draft, found))
            before = {(c.table, c.day): len(c.sources) for c in found}
            topics = {state.files_table: t for t, state in draft.tables.items()}
            for r in done:
                draft.relocate(r.table, r.day)
                draft.files.extend(r.files)
                if r.table in topics:
                    change = len(r.files) - before[r.table, r.day]
                    draft.add_file_count(topics[r.table], change)
            self._context.on_step("staged")
        commit = self._transaction.commit(draft)
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

    def _candidate(self, draft: CommitBuilder, table: str, day: str) -> _Candidate | None:
        sources = draft.sources(table, day)
        small = sum(file_size(path) < SMALL for path in sources)
        if small < self._worth_it:
            return None
        return _Candidate(table, day, tuple(sources), small)

    def _jobs(self, draft: CommitBuilder, found: Sequence[_Candidate]) -> list[Rewrite]:
        columns = {QUARANTINE_TABLE: QUARANTINE_COLUMNS}
        names = {QUARANTINE_TABLE: ""}
        for topic, state in draft.tables.items():
            names[state.files_table] = topic
        staging = self._transaction.staging(draft.number)
        for table in {c.table for c in found} - columns.keys():
            history = projections_of(draft.tables[names[table]], self._context.log)
            columns[table] = (*file_columns(history), *METADATA)
        return [
            Rewrite(
                draft.number,
                names[c.table],
                c.table,
                c.day,
                c.sources,
                staging,
                columns=columns[c.table],
            )
            for c in found
        ]
