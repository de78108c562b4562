"""Folders and tables that a commit replaced, until no query can still read them.

Rule: `add` may run again for the same commit; it then writes the same file with a later time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.log_files import read_json
from hadoop_loader._storage.filesystem import AnyPath, sorted_glob, write_durably


@dataclass(frozen=True, slots=True)
class RetiredBatch:
    """The folders and tables that one commit replaced."""

    file: AnyPath  # the file that records it, to be removed last
    since_ms: int  # when the commit was applied
    folders: list[str]  # relative to the warehouse
    tables: list[str]  # tables over files, with their folders

    @property
    def number(self) -> int:
        """The number of the commit."""
        return int(self.file.name[:8])

    @property
    def all_tables(self) -> set[str]:
        """The tables over files that had the folders, and the replaced ones."""
        return {*self.tables, *(folder.split("/")[0] for folder in self.folders)}


class RetiredFiles:
    """The records in `folder`, one file for each commit."""

    def __init__(self, folder: AnyPath) -> None:
        self._folder = folder  # created by the first `add`

    def add(self, commit: Commit, since_ms: int, table: str = "") -> None:
        """Record what a commit replaced, if anything; `table`: the only one of it, if held."""
        folders = [r.retired for r in commit.relocations]
        if folders or commit.retired_tables:
            record = {"since_ms": since_ms, "folders": folders, "tables": commit.retired_tables}
            self._folder.mkdir(exist_ok=True)
            write_durably(
                self._folder / f"{commit.number:08d}{table and '-'}{table}.json", json.dumps(record)
            )

    def batches(self) -> list[RetiredBatch]:
        """Return everything that is retired and not removed yet, oldest first."""
        return [
            RetiredBatch(path, **read_json(path)) for path in sorted_glob(self._folder, "*.json")
        ]
