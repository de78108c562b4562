"""What is in the tables' files, by their footers, beside what the commits say: no Spark, no scan.

Rules: reads only, and only where readers are sent; what waits to be removed is no row. The commits
are believed when each of them is what was written, and names the one before it; the first one, the
last of those that the loader has noted to have forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, checksum
from hadoop_loader._storage.filesystem import AnyPath, parquet_source
from headworks.errors import CorruptError, UsageError

__all__ = ["TableRows", "count_rows"]


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a topic's table, in its files and by the commits; and what is in quarantine."""

    topic: str
    table: str
    in_files: int
    in_commits: int
    quarantined: int


def count_rows(root: AnyPath) -> list[TableRows]:
    """Every table of the warehouse in `root`, by topic; UsageError if it is none.

    CorruptError if a commit is not what the loader wrote, or is gone.
    """
    state = root / "_headworks"
    log = CommitLog(state) if (state / "commits").is_dir() else None
    last = _verify_chain(log) if log is not None else None
    if log is None or last is None:
        raise UsageError(
            f"{root} is no warehouse: nothing was ever loaded into it",
            fix="run `headworks load run`, or give --warehouse or --data-dir",
        )
    return [
        TableRows(
            topic=topic,
            table=table.table,
            in_files=_rows_in(root, table.files_table, log.layout(last, table.files_table)),
            in_commits=table.rows,
            quarantined=table.quarantined,
        )
        for topic, table in sorted(last.tables.items())
    ]


def _verify_chain(log: CommitLog) -> Commit | None:
    last: Commit | None = None
    gone = log.expired()
    before, expected = gone.through, gone.checksum
    for number in log.numbers():
        if number <= gone.through:
            continue
        commit = log.read(number)
        if commit.previous != expected:
            raise CorruptError(
                f"commit {number} does not follow {before or 'nothing'}: "
                "a commit between them is gone, or was changed",
                fix="restore the commits from a backup of the warehouse",
            )
        last, before, expected = commit, number, checksum(commit)
    return last


def _rows_in(root: AnyPath, table: str, moved: dict[str, str]) -> int:
    """Rows in the folders of all days; `moved` has those that are elsewhere."""
    import pyarrow.parquet as pq

    folders = {path.name.partition("=")[2]: path for path in (root / table).glob("datepartition=*")}
    folders |= {day: root / folder for day, folder in moved.items()}
    return sum(
        int(pq.read_metadata(parquet_source(path)).num_rows)
        for folder in folders.values()
        for path in folder.glob("[!._]*.parquet")
    )
