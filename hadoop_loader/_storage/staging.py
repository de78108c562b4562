"""Files of a load before they count: written in a hidden folder, durable before they are named.

Rule: a file's final name holds the load and the attempt, so that no two loads, bins or attempts
can ever write the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hadoop_loader._storage.failpoints import failpoint
from hadoop_loader._storage.filesystem import AnyPath, open_for_write
from hadoop_loader._storage.fsync import FsyncPool
from hadoop_loader._storage.parquet_encodings import dictionary_columns

__all__ = ["StagedFile", "Stager", "write_parquet"]


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished file: where it lies, and the topic, table, day and name that it is for."""

    path: str
    topic: str
    table: str
    day: str
    name: str
    rows: int
    bytes: int


class Stager:
    """Writes the files of one attempt of one task in `folder`."""

    def __init__(self, folder: AnyPath, load: int) -> None:
        self._folder = folder
        self._load = load
        self._files: list[StagedFile] = []
        self._named = 0
        self._syncing = FsyncPool()
        folder.mkdir(parents=True)

    def path(self) -> AnyPath:
        """A name in the folder that no file of any load has."""
        self._named += 1
        return (
            self._folder
            / f"load-{self._load:08d}-{self._folder.name[:12]}-{self._named - 1:05d}.parquet"
        )

    def add(self, file: StagedFile) -> None:
        """Count a file in that was written under a name of `path`."""
        self._files.append(file)

    def write(
        self, topic: str, table: str, rows: pa.Table, days: Sequence[tuple[str, int, int]]
    ) -> None:
        """Write `rows` in one file for each (day, first row, number of rows)."""
        dictionaries = dictionary_columns(rows)
        for day, start, count in days:
            path = self.path()
            failpoint("writing")
            with open_for_write(path) as file:
                write_parquet(rows.slice(start, count), file, dictionaries)
                size = file.tell()
            self._syncing.add(path)
            self.add(StagedFile(str(path), topic, table, day, path.name, count, size))

    def close(self) -> tuple[StagedFile, ...]:
        """The files written; they and their names are durable from now on."""
        self._syncing.add(self._folder)
        self._syncing.add(self._folder.parent)
        self._syncing.wait()
        return tuple(self._files)


def write_parquet(rows: pa.Table, file: Any, dictionaries: list[str]) -> None:
    """Write a table's file; `dictionaries`: the columns (as `repeating` names them) to have one."""
    use: Any = dictionaries
    pq.write_table(rows, file, compression="zstd", use_dictionary=use, store_schema=False)
