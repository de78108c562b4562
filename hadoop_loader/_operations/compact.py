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

from hadoop_loader._commit.commit_builder import Draft
from hadoop_loader._commit.commit_log import Commit
from hadoop_loader._commit.report import Compacted, report_of
from hadoop_loader._commit.roll_forward import history_of
from hadoop_loader._commit.transaction import Parts, Progress, Work
from hadoop_loader._decode.quarantine import QUARANTINE_COLUMNS, QUARANTINE_TABLE
from hadoop_loader._storage.filesystem import Place, size_of
from hadoop_loader._tables.columns import METADATA
from hadoop_loader._tables.views import file_columns
from hadoop_loader._tasks.rewrite_task import SMALL, Rewrite

__all__ = ["AT_ONCE", "WORTH_IT", "Compacting"]

WORTH_IT = 16
AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class _Candidate:
    table: str
    day: str
    sources: tuple[Place, ...]
    small: int


class Compacting:
    """One compaction; `worth_it` small files make one."""

    def __init__(
        self, parts: Parts, progress: Progress | None = None, *, worth_it: int = WORTH_IT
    ) -> None:
        self._parts = parts
        self._work = Work(parts, progress)
        self._worth_it = worth_it

    def everything(self, topic: str | None = None) -> Compacted:
        """Every partition of every table, or of one topic's."""
        last = self._work.recover()
        if last is None:
            return Compacted()
        draft = self._work.draft(last, "compact")
        tables = self._tables(last, topic)
        return self._compact(draft, [(table, day) for table in tables for day in draft.days(table)])

    def touched(self, commit: Commit) -> Compacted:
        """The partitions that a load has just put files into."""
        draft = self._work.draft(commit, "compact")
        return self._compact(draft, {(f.table, f.day) for f in commit.files}, AT_ONCE)

    def _tables(self, last: Commit, topic: str | None) -> list[str]:
        tables = [s.files_table for t, s in last.tables.items() if topic in (None, t)]
        if topic is None and (self._parts.root / QUARANTINE_TABLE).is_dir():
            tables.append(QUARANTINE_TABLE)
        return tables

    def _compact(
        self,
        draft: Draft,
        partitions: Iterable[tuple[str, str]],
        at_most: int | None = None,
    ) -> Compacted:
        found = [
            c for table, day in sorted(partitions) if (c := self._candidate(draft, table, day))
        ]
        found = sorted(found, key=lambda c: -c.small)[:at_most]
        if not found:
            return Compacted()
        with self._work.phase("compact"):
            done = self._parts.jobs.rewrite(self._jobs(draft, found))
            before = {(c.table, c.day): len(c.sources) for c in found}
            topics = {state.files_table: t for t, state in draft.tables.items()}
            for r in done:
                draft.relocate(r.table, r.day)
                draft.files.extend(r.files)
                if r.table in topics:
                    change = len(r.files) - before[r.table, r.day]
                    draft.recount(topics[r.table], change)
            self._parts.reach("staged")
        commit = self._work.commit(draft)
        compacted = Compacted(
            commit.number,
            len(done),
            sum(before.values()),
            sum(len(r.files) for r in done),
            round(sum(self._work.seconds.values()), 3),
        )
        report = report_of(commit.number, commit, seconds=dict(self._work.seconds))
        self._parts.log.keep_report(commit.number, {**report.as_dict(), **asdict(compacted)})
        return compacted

    def _candidate(self, draft: Draft, table: str, day: str) -> _Candidate | None:
        sources = draft.sources(table, day)
        small = sum(size_of(path) < SMALL for path in sources)
        if small < self._worth_it:
            return None
        return _Candidate(table, day, tuple(sources), small)

    def _jobs(self, draft: Draft, found: Sequence[_Candidate]) -> list[Rewrite]:
        columns = {QUARANTINE_TABLE: QUARANTINE_COLUMNS}
        names = {QUARANTINE_TABLE: ""}
        for topic, state in draft.tables.items():
            names[state.files_table] = topic
        staging = self._work.staging(draft.number)
        for table in {c.table for c in found} - columns.keys():
            history = history_of(draft.tables[names[table]], self._parts.log)
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
