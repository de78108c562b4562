"""Retention of tables: partitions of days that are older than the operator keeps.

Rules:

- A partition goes as a whole, with its files, at once: a query that reads it at that moment fails.
- The commit counts the rows that left, so `audit verify` expects the remaining ones.
- The quarantine follows only if every topic is loaded, because its partitions hold all topics.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_record import TopicCommit
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._storage.filesystem import parquet_source

_DAY_CHARACTERS = len("2013-01-31")


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """The result of a retention run."""

    number: int = 0  # of its commit; 0: there was nothing to remove
    partitions: int = 0
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.partitions} partitions with {self.rows:,} rows"


class TableRetention:
    """Removes partitions of days before the first that `policy` keeps."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)

    def run_after(self) -> RetentionReport:
        """Remove what is too old, after a load that has recovered the warehouse."""
        policy, last = self._context.policy, self._context.log.latest()
        if policy.keep_days is None or last is None:
            return RetentionReport()
        now = datetime.fromtimestamp(self._context.now(), UTC)
        first = (now - timedelta(days=policy.keep_days)).date().isoformat()
        builder = self._transaction.new_commit(last, "retention")
        held, partitions, removed = self._transaction.held, 0, 0
        for topic, state in sorted(last.tables.items()):
            table = state.files_table
            if not policy.includes(topic) or table in held:
                continue
            old = _days_with_files(builder, table, first)
            files = [path for day in old for path in builder.sources(table, day)]
            rows = sum(pq.read_metadata(parquet_source(path)).num_rows for path in files)
            if old:
                builder.drop_days(table, old)
                counts = TopicCommit({}, -rows, 0, 0, 0, -len(files), {}, {}, None, None)
                builder.count(topic, counts, self._transaction.now_ms(), removed=rows)
                partitions, removed = partitions + len(old), removed + rows
        if _loads_every_topic(policy) and QUARANTINE_TABLE not in held:
            days = _days_with_files(builder, QUARANTINE_TABLE, first)
            builder.drop_days(QUARANTINE_TABLE, days)
        if not builder.dropped_days:
            return RetentionReport()
        commit = self._transaction.commit(builder)
        return RetentionReport(commit.number, partitions, removed)


def _days_with_files(builder: CommitBuilder, table: str, before: str) -> list[str]:
    days = (day for day in builder.days(table) if day[:_DAY_CHARACTERS] < before)
    return [day for day in days if builder.sources(table, day)]


def _loads_every_topic(policy: Policy) -> bool:
    return policy.allow == ".*" and not policy.deny
