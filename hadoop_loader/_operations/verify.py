"""Rows in the tables' files, by their footers, beside what the commits say: no Spark, no scan.

Rules: it only reads, and only the folders that readers are sent to; retired files do not count. The
commits are trusted if each is what was written and names the one before it. The first one must name
the last commit that the loader noted as expired.
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
    """Rows of a topic's table: in its files, by the commits, and in quarantine."""

    topic: str
    table: str
    in_files: int
    in_commits: int
    quarantined: int  # messages, by the commits


def count_rows(root: AnyPath) -> list[TableRows]:
    """Count every table of the warehouse in `root`, by topic; UsageError if it is none.

    Raises CorruptError if a commit is missing, or is not what the loader wrote.
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
    expired = log.expired()
    before, expected = expired.through, expired.checksum
    for number in log.numbers():
        if number <= expired.through:
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
    """Count the rows in the folders of all partitions; `moved` has the relocated ones."""
    import pyarrow.parquet as pq

    folders = {path.name.partition("=")[2]: path for path in (root / table).glob("datepartition=*")}
    folders |= {day: root / folder for day, folder in moved.items()}
    return sum(
        int(pq.read_metadata(parquet_source(path)).num_rows)
        for folder in folders.values()
        for path in folder.glob("[!._]*.parquet")
    )
