"""Files of a load before they count: written in a hidden folder, durable before they are named.

Rule: a file's final name holds the load and the attempt, so that no two loads, bins or attempts
can ever write the same one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hadoop_loader.durable import sync_folder

__all__ = ["StagedFile", "Stager"]


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished file: where it lies, and the table, day and name that it is for."""

    path: str
    table: str
    day: str
    name: str
    rows: int
    bytes: int


class Stager:
    """Writes the files of one attempt of one task in `folder`."""

    def __init__(self, folder: Path, load: int) -> None:
        self._folder = folder
        self._load = load
        self._files: list[StagedFile] = []
        folder.mkdir(parents=True)

    def write(self, table: str, rows: pa.Table, days: Sequence[tuple[str, int, int]]) -> None:
        """Write `rows` in one file for each (day, first row, number of rows)."""
        for day, start, count in days:
            name = f"load-{self._load:08d}-{self._folder.name[:12]}-{len(self._files):05d}.parquet"
            path = self._folder / name
            with path.open("wb") as file:
                pq.write_table(
                    rows.slice(start, count), file, compression="zstd", store_schema=False
                )
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            self._files.append(StagedFile(str(path), table, day, name, count, size))

    def close(self) -> tuple[StagedFile, ...]:
        """The files written; their names are durable from now on."""
        sync_folder(self._folder)
        return tuple(self._files)
