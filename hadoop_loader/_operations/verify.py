"""Rows in the tables' files, by their footers or read, beside what the commits say: no Spark.

Rules: it only reads, and only the folders that readers are sent to, and the files of a held table
that are still in staging. Retired files do not count. The
commits are trusted if each is what was written and names the one before it. The first one must name
the last commit that the loader noted as expired.
"""

from __future__ import annotations

from dataclasses import dataclass

from hadoop_loader._commit.commit_log import CommitLog, no_warehouse_error
from hadoop_loader._commit.commit_record import Commit, checksum
from hadoop_loader._storage.filesystem import AnyPath, parquet_source
from hadoop_loader._tasks.rewrite_task import reading
from headworks.errors import CorruptError

_BATCH_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a topic's table: in its files, by the commits, and in quarantine."""

    topic: str
    table: str
    in_files: int
    in_commits: int
    quarantined: int  # messages, by the commits
    removed: int = 0  # by erasure and retention; the audit counts them

    @property
    def counted(self) -> int:
        """The messages that the audit has, if it counts the topic."""
        return self.in_commits + self.quarantined + self.removed


def count_rows(root: AnyPath, *, read_files: bool = False) -> list[TableRows]:
    """Count every table of the warehouse in `root`, by topic; UsageError if it is none.

    `read_files`: read all pages, and compare their checksums. Raises CorruptError if a commit or a
    file of a table is missing, or is not what the loader wrote.
    """
    log = CommitLog.of(root)
    last = _verify_chain(log)
    if last is None:
        raise no_warehouse_error(root)
    return [
        TableRows(
            topic=topic,
            table=table.table,
            in_files=_rows_in(
                root,
                table.files_table,
                log.layout(last, table.files_table),
                read_files=read_files,
            )
            + _rows_held(root, table.files_table, log),
            in_commits=table.rows,
            quarantined=table.quarantined,
            removed=table.removed,
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
                fix="restore the commits from a backup of the warehouse (docs/backup.md)",
            )
        last, before, expected = commit, number, checksum(commit)
    return last


def _rows_in(root: AnyPath, table: str, moved: dict[str, str], *, read_files: bool) -> int:
    """Count the rows in the folders of all partitions; `moved` has the relocated ones."""
    folders = {path.name.partition("=")[2]: path for path in (root / table).glob("datepartition=*")}
    folders |= {day: root / folder for day, folder in moved.items()}
    return sum(
        _rows_of(path, read_files=read_files)
        for folder in folders.values()
        for path in folder.glob("[!._]*.parquet")
    )


def _rows_of(path: AnyPath, *, read_files: bool) -> int:
    import pyarrow.parquet as pq

    with reading(path):
        if not read_files:
            return int(pq.read_metadata(parquet_source(path)).num_rows)
        file = pq.ParquetFile(parquet_source(path), page_checksum_verification=True)
        return sum(batch.num_rows for batch in file.iter_batches(_BATCH_ROWS))


def _rows_held(root: AnyPath, table: str, log: CommitLog) -> int:
    """Count the rows that are committed and wait in staging, because the table is held."""
    return sum(
        file.rows
        for held in log.held.entries()
        if held.table == table
        for file in log.read(held.number).files
        if file.table == table and (root / file.staged).exists()
    )
