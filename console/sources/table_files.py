"""The data files of a table: how many there are, and how many are small.

Rule: bounded. The newest partitions are counted first, and the result says if there are more.
"""

from __future__ import annotations

from dataclasses import dataclass

from hadoop_loader._storage.filesystem import AnyPath, file_size, sorted_glob
from headworks._console.sources.loads import open_log

_MAX_FILES = 5_000


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table's newest partitions; `whole` is False if there are more.

    A compaction takes the `worth_it` partitions, which have enough small files.
    """

    partitions: int
    files: int
    bytes: int
    small: int
    small_below: int  # bytes
    worth_it: int
    whole: bool


def count_files(warehouse: AnyPath, table: str) -> TableFiles | None:
    """Return the count of a table's files, or None before its first load."""
    from hadoop_loader._operations.compact import MIN_SMALL_FILES
    from hadoop_loader._tasks.rewrite_task import SMALL_FILE_BYTES

    log = open_log(warehouse)
    if log is None:
        return None
    days: dict[str, AnyPath] = {
        path.name.partition("=")[2]: path for path in (warehouse / table).glob("datepartition=*")
    }
    moved = log.layout(log.latest(), table)
    days |= {day: warehouse / folder for day, folder in moved.items()}
    partitions = files = size = small = worth = 0
    for _, folder in sorted(days.items(), reverse=True):
        if files >= _MAX_FILES:
            return TableFiles(partitions, files, size, small, SMALL_FILE_BYTES, worth, whole=False)
        sizes = [file_size(path) for path in sorted_glob(folder, "[!._]*.parquet")]
        few = sum(one < SMALL_FILE_BYTES for one in sizes)
        partitions, files, size = partitions + 1, files + len(sizes), size + sum(sizes)
        small, worth = small + few, worth + (few >= MIN_SMALL_FILES)
    return TableFiles(partitions, files, size, small, SMALL_FILE_BYTES, worth, whole=True)
