"""Tables whose part of a commit is not applied yet, because it failed: one file for each.

Rules:

- A table is held at one commit at most: no later commit changes it until that one is applied.
- An entry is durable before the commit counts as applied, and removed after the table's part is.
- A stale entry, written by a loader that was outlived, is harmless: `is_current` tells it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._storage.filesystem import AnyPath, sorted_glob, write_durably
from hadoop_loader._storage.fsync import sync_folder


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table over files, and the commit whose part of it is not applied."""

    number: int
    table: str

    def is_current(self, commit: Commit, last: Commit) -> bool:
        """Return whether no commit after `commit` has changed the table, up to `last`."""
        same_layout = commit.layouts.get(self.table) == last.layouts.get(self.table)
        topics = [t for t, state in commit.tables.items() if state.files_table == self.table]
        return same_layout and all(last.tables.get(t) == commit.tables[t] for t in topics)


class HeldTables:
    """The entries in `folder`, which the first `add` creates."""

    def __init__(self, folder: AnyPath) -> None:
        self._folder = folder

    def entries(self) -> list[HeldTable]:
        """Return all entries, oldest commit first."""
        names = [path.name.partition("-") for path in sorted_glob(self._folder, "[0-9]*-*")]
        return [HeldTable(int(number), table) for number, _, table in names]

    def add(self, number: int, tables: set[str]) -> None:
        """Record durably that the tables' parts of commit `number` are not applied."""
        if not tables:
            return
        self._folder.mkdir(exist_ok=True)
        for table in sorted(tables):
            write_durably(self._path(number, table), "")
        sync_folder(self._folder)
        sync_folder(self._folder.parent)

    def remove(self, number: int, tables: set[str]) -> None:
        """Remove the entries of these tables, if there are any."""
        if self._folder.is_dir():
            for table in tables:
                with suppress(FileNotFoundError):
                    self._path(number, table).unlink()

    def _path(self, number: int, table: str) -> AnyPath:
        return self._folder / f"{number:08d}-{table}"
