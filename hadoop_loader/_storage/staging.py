"""Staged files: written in a hidden folder, durable before a commit names them.

Rule: a file's final name contains the number of its commit and its attempt, so no two commits,
tasks, or attempts ever write the same one.
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
from hadoop_loader._storage.parquet_encodings import FileSettings, very_few


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished file in staging, and where it belongs."""

    path: str  # where it lies now
    topic: str
    table: str  # the table over files that it is for
    day: str  # the partition that it is for
    name: str  # its name there
    rows: int
    bytes: int


class Stager:
    """Writes the files of one attempt of one task in `folder`."""

    def __init__(self, folder: AnyPath, load: int) -> None:
        self._folder = folder
        self._prefix = f"load-{load:08d}-{folder.name[:12]}-"  # `load`: the number of the commit
        self._files: list[StagedFile] = []
        self._names = 0  # names given so far
        self._fsyncs = FsyncPool()
        folder.mkdir(parents=True)

    def path(self) -> AnyPath:
        """Return a path in the folder whose name no other commit or attempt uses."""
        self._names += 1
        return self._folder / f"{self._prefix}{self._names - 1:05d}.parquet"

    def add(self, file: StagedFile) -> None:
        """Add a file that was written at a path of `path`."""
        self._files.append(file)

    def write(
        self, topic: str, table: str, rows: pa.Table, days: Sequence[tuple[str, int, int]]
    ) -> None:
        """Write one file for each (day, first row, number of rows)."""
        if very_few(rows.num_rows // max(1, len(days))):
            # Each piece of a column takes time, in every file, whatever its size.
            rows = rows.combine_chunks()
        settings = FileSettings(rows)
        for day, start, count in days:
            path = self.path()
            failpoint("writing")
            with open_for_write(path) as file:
                write_parquet(rows.slice(start, count), file, settings)
                size = file.tell()
            self._fsyncs.add(path)
            self.add(StagedFile(str(path), topic, table, day, path.name, count, size))

    def close(self) -> tuple[StagedFile, ...]:
        """Make the files and their names durable, and return them."""
        self._fsyncs.add(self._folder)
        self._fsyncs.add(self._folder.parent)
        self._fsyncs.wait()
        return tuple(self._files)


def write_parquet(rows: pa.Table, file: Any, settings: FileSettings) -> None:
    """Write rows as Parquet, with page checksums."""
    few = very_few(rows.num_rows)
    # Arrow calls Python for each of the many parts that it writes to an object of Python.
    out: Any = pa.BufferOutputStream() if few else file
    pq.write_table(rows, out, **settings.of(rows.num_rows))
    if few:
        file.write(out.getvalue())
