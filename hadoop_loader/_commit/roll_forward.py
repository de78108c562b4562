"""The work after a commit: tables, views, files, partitions, and counts. All can be repeated.

Rules:

- The commit is the only input. Running it twice, or again after a crash, ends in the same state.
- The table over the files is altered first, then the view, and then files are renamed into place.
  So every file that a reader sees has the columns it was written with.
- The view of a settled table, which needs no earlier schema, is replaced after its files: both the
  old view and the new one show these files rightly.
- If a nested type changes, the old view cannot be read until it is replaced. So topics are done one
  after the other. A rebuilt table is new: its view is replaced when all its files are in place.
- A table that fails gets back what readers had, and is held: `held_tables` names it, and every run
  tries again. Its files stay in staging, and its counts are not published until then.
- A rename records itself: if the staged file is missing, it was renamed before.
- The metastore is asked only about new partitions. If a folder existed before the first attempt, an
  earlier commit added its partition, because that commit was applied completely.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from hadoop_loader._commit.catalog import Catalog
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, CommitFile, TableState
from hadoop_loader._commit.definitions import (
    define_masked_view,
    define_quarantine,
    define_statistics,
    define_table,
    define_view,
    lacks_masked_view,
)
from hadoop_loader._commit.table_failures import TableFailures
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._storage.failpoints import StepHook
from hadoop_loader._storage.filesystem import AnyPath, remove_tree, rename
from hadoop_loader._storage.fsync import sync_folders
from headworks.errors import CorruptError

PublishCounts = Callable[[Commit], None]
_KINDS_OF_MANY_TOPICS = ("load", "compact", "takeover", "retention")


@dataclass(frozen=True, slots=True)
class RollForward:
    """The work after commits; a table that fails holds up no other one."""

    log: CommitLog  # has the commits, and those that are applied
    root: AnyPath  # the folder of the warehouse
    catalog: Catalog  # the metastore
    publish: PublishCounts  # sends the counts of a commit to the audit
    on_step: StepHook  # called after each step, with its name
    failures: TableFailures  # the tables that failed in this transaction
    now_ms: Callable[[], int]  # milliseconds since 1970
    fenced: bool  # no other loader can have applied the same commit

    def apply(self, commit: Commit, *, retry: bool) -> None:
        """Do all work after `commit`, hold the tables that fail, and mark it as applied.

        `retry`: an earlier attempt may have done part of it.
        """
        tables = tables_of(commit)
        failed = self._change(commit, tables, retry=retry)
        done = _part(commit, tables - failed)
        self.log.retired.add(done, self.now_ms())
        self.on_step("partitions")
        self.publish(done)
        self.on_step("audit")
        self.log.held.add(commit.number, failed)
        self.log.held.remove(commit.number, tables - failed)
        self.on_step("held")
        self.log.mark_applied(commit.number)
        self.on_step("applied")

    def apply_held(self, last: Commit) -> None:
        """Apply what earlier commits have left, table by table."""
        for held in self.log.held.entries():
            if held.table in self.failures.errors:
                continue
            commit = last if held.number == last.number else self.log.read(held.number)
            if held.is_current(commit, last):
                failed = self._change(commit, {held.table}, retry=True)
                if failed:
                    continue
                done = _part(commit, {held.table})
                self.log.retired.add(done, self.now_ms(), table=held.table)
                self.on_step("partitions")
                self.publish(done)
                self.on_step("audit")
            self.log.held.remove(held.number, {held.table})
            self.on_step("held")

    def restore(self, commit: Commit, *, applied: bool) -> None:
        """Define the tables again that `commit` knows and the metastore has lost.

        Their names are recorded until all their partitions are defined, because a table without
        them looks complete. Tables that `commit` adds are left to `apply`, unless it is applied.
        Held tables are left to `apply_held`, which first moves their files.
        """
        known = self.catalog.tables() - self.log.tables_to_restore()
        states = {s.files_table: s for s in commit.tables.values()}
        if not applied:
            states = {n: s for n, s in states.items() if s.projections[0][0] != commit.number}
        missing = states.keys() - known
        if (self.root / QUARANTINE_TABLE).is_dir():
            missing |= {QUARANTINE_TABLE} - known
        if not missing:
            return
        self.log.set_tables_to_restore(missing)
        held = {one.table for one in self.log.held.entries()}
        restored = set()
        for table in sorted(missing - held):
            if self._restore_table(table, states.get(table), commit):
                restored.add(table)
        self.log.set_tables_to_restore(missing - restored)

    def mask(self, commit: Commit) -> None:
        """Define the masked views that are missing, or older than the table's columns."""
        lacking = [s for s in commit.tables.values() if lacks_masked_view(s, self.catalog)]
        held = {one.table for one in self.log.held.entries()} if lacking else set()
        for state in lacking:
            if state.files_table not in held:
                define = partial(define_masked_view, state, self.log, self.catalog)
                self.failures.attempt(state.files_table, define)

    def _restore_table(self, table: str, state: TableState | None, commit: Commit) -> bool:
        """Define a table again with its view and partitions; return whether that is done."""

        def define() -> None:
            if state is None:
                define_quarantine(self.root, self.catalog)
            else:
                define_table(state, self.log, self.root, self.catalog)
                define_view(state, self.log, self.catalog)

        if not self.failures.attempt(table, define):
            return False
        self.on_step("restoring")
        return self.failures.attempt(
            table, lambda: _restore_days(table, commit, self.log, self.root, self.catalog)
        )

    def _change(self, commit: Commit, tables: set[str], *, retry: bool) -> set[str]:
        """Change these tables as `commit` says; return those that failed, as they were before."""
        attempt, changed = self.failures.attempt, _changed_states(commit, tables)
        rebuilt = changed if commit.retired_tables else []
        for state in changed:
            attempt(state.files_table, partial(define_table, state, self.log, *self._place))
            self.on_step("tables")
            if not rebuilt:
                attempt(state.files_table, partial(define_view, state, self.log, self.catalog))
        for table, view in commit.dropped_tables:
            if table in tables:
                attempt(table, partial(self._drop, table, view))
        for table, folders in commit.dropped_days.items():
            if table in tables:
                attempt(table, partial(self._drop_days, table, folders))
        if not changed:
            self.on_step("tables")
        if commit.quarantine and QUARANTINE_TABLE in tables:
            attempt(QUARANTINE_TABLE, partial(define_quarantine, *self._place))
        self.on_step("views")
        known = set() if retry else _days_with_folders(commit, self.root)
        files = _files_by_table(commit)
        self._rename_files(commit, {t: files[t] for t in self._left(commit, tables)}, known)
        self.on_step("renamed")
        lost = self.log.tables_to_restore()  # while they were held
        for table in sorted(self._left(commit, tables) - lost):
            days = {f.day for f in files[table] if (table, f.day) not in known}
            attempt(table, partial(self._register_partitions, commit, table, days))
        for table in sorted(self._left(commit, tables) & lost):
            found = (one for one in commit.tables.values() if one.files_table == table)
            if self._restore_table(table, next(found, None), commit):
                self.log.set_tables_to_restore(self.log.tables_to_restore() - {table})
        settled = [s for s in commit.tables.values() if s.files_table in commit.settled_tables]
        for state in (*rebuilt, *settled):
            if state.files_table in self._left(commit, tables):
                # Members that only old files had leave the table: the view's types have none.
                attempt(state.files_table, partial(define_table, state, self.log, *self._place))
                attempt(state.files_table, partial(define_view, state, self.log, self.catalog))
        for state in commit.tables.values():
            measured = state.statistics and state.statistics[0] == commit.number
            told = state.changed_by(commit.number)  # with its columns
            if measured and not told and state.files_table in self._left(commit, tables):
                attempt(state.files_table, partial(define_statistics, state, self.catalog))
        failed = tables - self._left(commit, tables)
        if self.fenced:  # otherwise another loader may have applied the commit meanwhile
            for table in sorted(failed):
                self._put_back(commit, table)
        return failed

    @property
    def _place(self) -> tuple[AnyPath, Catalog]:
        return self.root, self.catalog

    def _left(self, commit: Commit, tables: set[str]) -> set[str]:
        """Return the tables that can still be changed.

        A rewind or a requeue moves messages between its tables, so one that fails stops both.
        """
        failed = tables & self.failures.errors.keys()
        if not failed or commit.kind in _KINDS_OF_MANY_TOPICS:
            return tables - failed
        for table in tables - failed:
            self.failures.errors[table] = self.failures.errors[min(failed)]
        return set()

    def _rename_files(
        self,
        commit: Commit,
        tables: Mapping[str, Sequence[CommitFile]],
        known: set[tuple[str, str]],
    ) -> None:
        """Rename tables' files into place durably; folders of `known` partitions are so already."""
        folders: dict[str, set[AnyPath]] = {}
        for table in sorted(tables):
            renames = partial(_rename_files, commit, tables[table], self.root, self.on_step, known)
            self.failures.attempt(table, lambda t=table, r=renames: folders.update({t: r()}))  # type: ignore[misc]
        try:
            sync_folders(set().union(*folders.values()))
        except OSError:  # of one table, or of all
            for table, own in folders.items():
                self.failures.attempt(table, partial(sync_folders, own))

    def _register_partitions(self, commit: Commit, table: str, days: set[str]) -> None:
        """Register a table's new partitions (`days`), and relocated ones with their new folder."""
        layout = self.log.layout(commit, table) if days else {}
        if days:
            self.catalog.add_days(table, sorted(days - layout.keys()))
        moved = {r.day: self.root / r.folder for r in commit.relocations if r.table == table}
        # A partition of the layout that was dropped, and gets files again.
        moved |= {day: self.root / layout[day] for day in days & layout.keys() - moved.keys()}
        for folder in moved.values():
            folder.mkdir(parents=True, exist_ok=True)
        if moved:
            self.catalog.relocate(table, moved)

    def _drop(self, table: str, view: str) -> None:
        self.catalog.drop_view(view)
        self.catalog.drop_table(table)
        remove_tree(self.root / table)

    def _drop_days(self, table: str, folders: Mapping[str, str]) -> None:
        self.catalog.drop_days(table, folders)
        for folder in folders.values():
            remove_tree(self.root / folder)

    def _put_back(self, commit: Commit, table: str) -> None:
        """Give readers of a table that failed what they had before the commit, as far as possible.

        A later attempt repeats what is undone here.
        """
        retired = {
            r.day: self.root / r.retired
            for r in commit.relocations
            if r.table == table and (self.root / r.retired).is_dir()
        }
        if retired:
            self._quietly(partial(self.catalog.relocate, table, retired))
        else:
            for file in _files_by_table(commit)[table]:
                if not (self.root / file.staged).exists():
                    with suppress(OSError):
                        rename(self.root / file.target, self.root / file.staged)
        for state in _changed_states(commit, {table}):
            if len(state.projections) > 1:
                before = replace(state, projections=state.projections[:-1])
                self._quietly(partial(define_view, before, self.log, self.catalog))
                self._quietly(partial(define_table, before, self.log, *self._place))
        if table in commit.settled_tables:
            earlier = self.log.read(commit.number - 1)
            for state in (s for s in earlier.tables.values() if s.files_table == table):
                self._quietly(partial(define_table, state, self.log, *self._place))
                self._quietly(partial(define_view, state, self.log, self.catalog))

    def _quietly(self, step: Callable[[], None]) -> None:
        """Take a step whose failure changes nothing: the table has failed already."""
        try:
            step()
        except Exception as error:
            if self.failures.to_error(error) is None:
                raise


def tables_of(commit: Commit) -> set[str]:
    """Return the tables over files that a commit changes."""
    changed = {state.files_table for state in _changed_states(commit)}
    counted = {commit.tables[topic].files_table for topic in commit.topics}
    moved = {relocation.table for relocation in commit.relocations}
    files = {file.table for file in commit.files}
    dropped = {table for table, _ in commit.dropped_tables} | commit.dropped_days.keys()
    return changed | counted | moved | files | dropped | set(commit.settled_tables)


def _files_by_table(commit: Commit) -> defaultdict[str, list[CommitFile]]:
    """Return the files that a commit adds to each table, none for another table."""
    found: defaultdict[str, list[CommitFile]] = defaultdict(list)
    for file in commit.files:
        found[file.table].append(file)
    return found


def _changed_states(commit: Commit, tables: Container[str] | None = None) -> list[TableState]:
    """Return the tables to which `commit` gave their columns, or those among `tables`."""
    changed = [state for state in commit.tables.values() if state.changed_by(commit.number)]
    return [state for state in changed if tables is None or state.files_table in tables]


def _part(commit: Commit, tables: set[str]) -> Commit:
    """Return the commit as far as it concerns these tables, for the work after their change."""
    if tables >= tables_of(commit):
        return commit
    topics = {t: n for t, n in commit.topics.items() if commit.tables[t].files_table in tables}
    return replace(
        commit,
        topics=topics,
        relocations=[moved for moved in commit.relocations if moved.table in tables],
        # Only a rebuild retires a table, and it changes one table.
        retired_tables=commit.retired_tables if tables else [],
    )


def _restore_days(
    table: str, commit: Commit, log: CommitLog, root: AnyPath, catalog: Catalog
) -> None:
    layout = log.layout(commit, table)
    found = {path.name.partition("=")[2] for path in (root / table).glob("datepartition=*")}
    catalog.add_days(table, sorted(found - layout.keys()))
    folders = {day: root / folder for day, folder in layout.items()}
    if there := {day: folder for day, folder in folders.items() if folder.is_dir()}:
        catalog.relocate(table, there)


def _days_with_folders(commit: Commit, root: AnyPath) -> set[tuple[str, str]]:
    """Return the partitions (table, day) that get files and whose folders exist."""
    places = {(f.table, f.day): root / f.target for f in commit.files}
    return {place for place, target in places.items() if target.parent.is_dir()}


def _rename_files(
    commit: Commit,
    files: Sequence[CommitFile],
    root: AnyPath,
    on_step: StepHook,
    known: set[tuple[str, str]],
) -> set[AnyPath]:
    """Rename a table's files into place, and return the folders to be made durable."""
    folders: set[AnyPath] = set()
    for file in files:
        staged, target = root / file.staged, root / file.target
        if target.parent not in folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            folders.add(target.parent)
            if (file.table, file.day) not in known:
                folders |= _parents_within(target.parent, root)
        on_step("renaming")
        try:
            rename(staged, target)
        except FileNotFoundError:
            if not target.exists():
                raise CorruptError(
                    f"file {target} of load {commit.number} is neither there nor in staging",
                    fix="restore it from a backup of the warehouse (docs/backup.md), then load "
                    "again",
                ) from None
    return folders


def _parents_within(folder: AnyPath, root: AnyPath) -> set[AnyPath]:
    """Return the folders between a folder and the root, root included."""
    found: set[AnyPath] = set()
    while folder != root:
        folder = folder.parent
        found.add(folder)
    return found
