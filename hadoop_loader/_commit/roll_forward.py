"""The work after a commit: tables, views, files, partitions, and counts. All can be repeated.

Rules:

- The commit is the only input. Running it twice, or again after a crash, ends in the same state.
- The table over the files is altered first, then the view, and then files are renamed into place.
  So every file that a reader sees has the columns it was written with.
- If a nested type changes, the old view cannot be read until it is replaced. So topics are done one
  after the other. A rebuilt table is new: its view is replaced when all its files are in place.
- A rename records itself: if the staged file is missing, it was renamed before.
- The metastore is asked only about new partitions. If a folder existed before the first attempt, an
  earlier commit added its partition, because that commit was applied completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, TableState
from hadoop_loader._decode.quarantine import QUARANTINE_COLUMNS, QUARANTINE_TABLE
from hadoop_loader._storage.failpoints import StepHook
from hadoop_loader._storage.filesystem import AnyPath, rename
from hadoop_loader._storage.fsync import sync_folders
from hadoop_loader._tables.columns import METADATA_COLUMNS, StructField, quoted
from hadoop_loader._tables.views import SchemaProjection, file_columns, view_columns, view_query
from headworks.errors import CorruptError
from headworks.schema import Record, Schema, parse

__all__ = ["Catalog", "PublishCounts", "apply_commit", "projections_of", "restore_metastore"]

PublishCounts = Callable[[Commit], None]


class Catalog(Protocol):
    """The metastore, as far as the loader uses it. Every method can be repeated."""

    def tables(self) -> set[str]:
        """Return the names of the tables over files."""
        ...

    def put_table(
        self,
        name: str,
        columns: Sequence[StructField],
        location: AnyPath,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        """Create a table over files, or set its columns and properties."""
        ...

    def put_view(
        self,
        name: str,
        columns: Sequence[StructField],
        query: str,
        comment: str | None,
        properties: dict[str, str],
    ) -> None:
        """Create or replace a view."""
        ...

    def add_days(self, name: str, days: Iterable[str]) -> None:
        """Add the partitions of these days that the table lacks."""
        ...

    def relocate(self, name: str, folders: Mapping[str, AnyPath]) -> None:
        """Point partitions at other folders, one after the other."""
        ...

    def drop_table(self, name: str) -> None:
        """Drop a table over files, if it exists; the files stay."""
        ...

    def set_properties(self, name: str, properties: dict[str, str]) -> None:
        """Set properties of a table over files."""
        ...

    def source_of(self, name: str) -> str:
        """Return the name of a table over files in SQL."""
        ...


def apply_commit(
    commit: Commit,
    log: CommitLog,
    root: AnyPath,
    catalog: Catalog,
    publish: PublishCounts,
    on_step: StepHook,
    *,
    retry: bool,
    now_ms: Callable[[], int],
) -> None:
    """Do all work after `commit`, and mark it as applied.

    `retry`: an earlier attempt may have done part of it.
    """
    changed = [s for s in commit.tables.values() if s.changed_by(commit.number)]
    rebuilt = changed if commit.retired_tables else []
    for state in changed:
        _define_table(state, log, root, catalog)
        on_step("tables")
        if not rebuilt:
            _define_view(state, log, catalog)
    if not changed:
        on_step("tables")
    if commit.quarantine:
        _define_quarantine(root, catalog)
    on_step("views")
    known = set() if retry else _days_with_folders(commit, root)
    _rename_files(commit, root, on_step, known)
    on_step("renamed")
    _register_partitions(commit, log, root, catalog, known)
    for state in rebuilt:
        _define_view(state, log, catalog)
    log.retired.add(commit, now_ms())
    on_step("partitions")
    publish(commit)
    on_step("audit")
    log.mark_applied(commit.number)
    on_step("applied")


def restore_metastore(
    commit: Commit,
    log: CommitLog,
    root: AnyPath,
    catalog: Catalog,
    on_step: StepHook,
    applied: bool,
) -> None:
    """Define the tables again that `commit` knows and the metastore has lost, with all partitions.

    Their names are recorded until that is done, because a table without its partitions looks
    complete. Tables that `commit` adds are left to `apply_commit`, unless it is applied.
    """
    known = catalog.tables() - log.tables_to_restore()
    states = {s.files_table: s for s in commit.tables.values()}
    if not applied:
        states = {n: s for n, s in states.items() if s.projections[0][0] != commit.number}
    missing = states.keys() - known
    if (root / QUARANTINE_TABLE).is_dir():
        missing |= {QUARANTINE_TABLE} - known
    if not missing:
        return
    log.set_tables_to_restore(missing)
    for table in sorted(missing):
        if table == QUARANTINE_TABLE:
            _define_quarantine(root, catalog)
        else:
            _define_table(states[table], log, root, catalog)
            _define_view(states[table], log, catalog)
        on_step("restoring")
        _restore_days(table, commit, log, root, catalog)
    log.set_tables_to_restore(())


def _restore_days(
    table: str, commit: Commit, log: CommitLog, root: AnyPath, catalog: Catalog
) -> None:
    layout = log.layout(commit, table)
    found = {path.name.partition("=")[2] for path in (root / table).glob("datepartition=*")}
    catalog.add_days(table, sorted(found - layout.keys()))
    if layout:
        catalog.relocate(table, {day: root / folder for day, folder in layout.items()})


def _days_with_folders(commit: Commit, root: AnyPath) -> set[tuple[str, str]]:
    """Return the partitions (table, day) that get files and whose folders exist."""
    places = {(f.table, f.day): root / f.target for f in commit.files}
    return {place for place, target in places.items() if target.parent.is_dir()}


def _register_partitions(
    commit: Commit, log: CommitLog, root: AnyPath, catalog: Catalog, known: set[tuple[str, str]]
) -> None:
    """Register new partitions, and relocated ones with their new folder."""
    days: dict[str, set[str]] = {}
    for table, day in {(f.table, f.day) for f in commit.files} - known:
        days.setdefault(table, set()).add(day)
    for table in sorted(days):
        catalog.add_days(table, sorted(days[table] - log.layout(commit, table).keys()))
    for table in sorted({moved.table for moved in commit.relocations}):
        folders = {r.day: root / r.folder for r in commit.relocations if r.table == table}
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        catalog.relocate(table, folders)


def projections_of(state: TableState, log: CommitLog) -> list[SchemaProjection]:
    """Return a table's projections, with their schemas."""
    return [
        SchemaProjection(int(load), int(version), parse(log.schemas.get(key), strict=False))
        for load, version, _, key in state.projections
    ]


def _define_table(state: TableState, log: CommitLog, root: AnyPath, catalog: Catalog) -> None:
    history = projections_of(state, log)
    columns = (*file_columns(history), *METADATA_COLUMNS)
    location = root / state.files_table
    location.mkdir(exist_ok=True)
    catalog.put_table(
        state.files_table, columns, location, _schema_doc(history[-1].schema), _properties(state)
    )


def _define_view(state: TableState, log: CommitLog, catalog: Catalog) -> None:
    history = projections_of(state, log)
    source = catalog.source_of(state.files_table)
    catalog.put_view(
        state.table,
        view_columns(history),
        view_query(source, history),
        _schema_doc(history[-1].schema),
        _properties(state),
    )


def _define_quarantine(root: AnyPath, catalog: Catalog) -> None:
    location = root / QUARANTINE_TABLE
    location.mkdir(exist_ok=True)
    comment = "Messages that could not become rows, with the reason."
    catalog.put_table(QUARANTINE_TABLE, QUARANTINE_COLUMNS, location, comment, {})
    names = [f.name for f in QUARANTINE_COLUMNS] + ["datepartition"]
    day = StructField("datepartition", QUARANTINE_COLUMNS[0].type, "day of the record, UTC")
    query = f"SELECT {', '.join(map(quoted, names))} FROM {catalog.source_of(QUARANTINE_TABLE)}"
    catalog.put_view(QUARANTINE_TABLE, (*QUARANTINE_COLUMNS, day), query, comment, {})


def _rename_files(
    commit: Commit, root: AnyPath, on_step: StepHook, known: set[tuple[str, str]]
) -> None:
    """Rename files into place durably; the folders of `known` partitions are durable already."""
    folders: set[AnyPath] = set()
    for file in commit.files:
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
                    fix="restore it from a backup of the warehouse, then load again",
                ) from None
    sync_folders(folders)


def _parents_within(folder: AnyPath, root: AnyPath) -> set[AnyPath]:
    """Return the folders between a folder and the root, root included."""
    found: set[AnyPath] = set()
    while folder != root:
        folder = folder.parent
        found.add(folder)
    return found


def _properties(state: TableState) -> dict[str, str]:
    _, version, schema_id, key = state.projections[-1]
    return {
        "headworks.subject": state.subject,
        "headworks.schema.version": str(version),
        "headworks.schema.id": str(schema_id),
        "headworks.schema.sha256": str(key),
    }


def _schema_doc(schema: Schema) -> str | None:
    return schema.doc if isinstance(schema, Record) else None
