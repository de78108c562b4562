"""The coordination store of a single broker: an SQLite file in its data folder.

Rules:

- Every change is one transaction.
- Topics and producer ids are on disk when the call returns. Ids are allocated in blocks, so that
  a client that asks for many does not keep the disk busy.
- Committed offsets are in the write-ahead log, which survives the process but not a power cut.
- Every commit is counted in the file beside the store, so that a lost log is noticed.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from headworks._broker.coordination.committed_offset import CommittedOffset
from headworks._broker.coordination.folder import partition_folders
from headworks._broker.coordination.interface import (
    ClusterMember,
    ConfigChange,
    PartitionKey,
    StoreFailureError,
    Topic,
    TopicExistsError,
    new_topic_id,
)
from headworks._broker.coordination.local_group_configs import TABLE as GROUP_CONFIG_TABLE
from headworks._broker.coordination.local_group_configs import LocalGroupConfigs
from headworks._broker.coordination.local_offsets import TABLES as OFFSET_TABLES
from headworks._broker.coordination.local_offsets import LocalOffsets
from headworks._broker.coordination.local_transactions import TABLES as TRANSACTION_TABLES
from headworks._broker.coordination.local_transactions import LocalTransactions
from headworks._broker.repeated_failure import RepeatedFailure
from headworks._server.checked_sqlite import row_checksums
from headworks._server.checked_sqlite.check import check
from headworks._server.checked_sqlite.commit_counter import CommitCounter, refuse_missing
from headworks.errors import CorruptError, UsageError

_log = logging.getLogger(__name__)

_ADOPT = "`headworks broker adopt`, which makes topics from the folders of their partitions"

_DAMAGED = (
    "stop the broker, and restore the store from a copy (docs/backup.md), or keep what is intact"
    " with `headworks broker salvage`"
)
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS topics (
    name TEXT PRIMARY KEY, partitions INTEGER NOT NULL, configs TEXT NOT NULL,
    deleting INTEGER NOT NULL DEFAULT 0, topic_id BLOB);
"""
_MORE_TABLES = f"{OFFSET_TABLES}{TRANSACTION_TABLES}{GROUP_CONFIG_TABLE}"
_SELECT_TOPICS = "SELECT name, partitions, configs, deleting, topic_id FROM topics"
_PRODUCER_ID_BLOCK = 1000
_COMMITS = "commits"  # the fact that counts them
_COUNT_COMMIT = f"UPDATE facts SET value = ? WHERE name = '{_COMMITS}'"


class LocalCoordination:
    """The store in the file `path`. `broker` has all partitions.

    A missing file is created. Raises CorruptError if it is damaged, or if it is missing or empty
    and logs lie beside it, unless `adopting`.
    """

    lease_valid = True  # the lock of the data folder excludes other brokers

    def __init__(self, path: Path, broker: int = 1, *, adopting: bool = False) -> None:
        self.members: dict[int, ClusterMember] = {}
        self._broker = broker
        self._path = path
        self._logs = [one.name for one in partition_folders(path.with_name("logs"))]
        self._producer_ids = range(0)  # producer ids that are allocated but not used
        self._write_failures = RepeatedFailure(_log, "the coordination store cannot be written now")
        if not adopting:
            # SQLite would remove the log beside it.
            if self._logs and not path.exists():
                raise self._lost()
            refuse_missing(path, _DAMAGED)
        check(path, _DAMAGED, flushes=False)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10)
            row_checksums.prepare(self._db)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA fullfsync=ON")  # macOS only: past the disk's cache
            self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES}{_MORE_TABLES}")
            self._add_missing_columns()
            row_checksums.protect(self._db)
            self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, '0')", (_COMMITS,))
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise UsageError(
                f"the coordination store {path} cannot be opened: {error}",
                fix="check the permissions of the folder and the free space of its disk",
            ) from None
        except sqlite3.DatabaseError as error:
            raise CorruptError(
                f"{path} is not a readable coordination store: {error}",
                fix=f"if nothing is left of it, move it away and run {_ADOPT}. Otherwise"
                f" {_DAMAGED}",
            ) from None
        begin = partial(self._transaction, durable=False)
        self.committed = LocalOffsets(self._db, begin)
        self.transactions = LocalTransactions(path, begin, self.committed)
        self._group_configs = LocalGroupConfigs(self._db, self._transaction)
        if not adopting and self._logs and self._fact("cluster_id") is None:
            self._db.close()
            raise self._lost()
        self._counter = CommitCounter(path)
        self._commits = int(self._fact(_COMMITS) or 0)
        self._begin_counting(adopting=adopting)
        self.cluster_id = self._cluster_id()
        self._add_missing_ids()

    def watch(self, changed: Callable[[], None]) -> None:
        """Do nothing: only the caller changes anything."""

    async def join(self, member: ClusterMember) -> None:
        """See `Coordination`."""
        self.members = {member.broker: member}

    async def leave(self) -> None:
        """Do nothing: there are no other brokers."""

    async def report_served(self, name: str, partitions: int) -> None:
        """Do nothing: there are no other brokers."""

    async def wait_until_followed(self, name: str) -> None:
        """Do nothing: there are no other brokers."""

    async def topics(self) -> list[Topic]:
        """See `Coordination`."""
        return [self._topic(row) for row in self._db.execute(_SELECT_TOPICS)]

    def _topic(self, row: tuple[str, int, str, int, bytes]) -> Topic:
        name, count, configs, deleting, topic_id = row
        own = (self._broker,)
        return Topic(
            name, own * count, json.loads(configs), bool(deleting), own, uuid.UUID(bytes=topic_id)
        )

    def _add_missing_columns(self) -> None:
        for table in ("topics", "offsets"):
            if "topic_id" not in row_checksums.columns(self._db, table):
                self._db.execute(f"ALTER TABLE {table} ADD COLUMN topic_id BLOB")

    def _add_missing_ids(self) -> None:
        """Give an id to each topic of a release that had no topic ids."""
        without = "SELECT name FROM topics WHERE topic_id IS NULL"
        names = [name for (name,) in self._db.execute(without)]
        if names:
            with self._transaction() as db:
                db.executemany(
                    "UPDATE topics SET topic_id = ? WHERE name = ?",
                    [(new_topic_id().bytes, name) for name in names],
                )

    async def read_topic(self, name: str) -> Topic | None:
        """See `Coordination`."""
        rows = self._db.execute(f"{_SELECT_TOPICS} WHERE name = ?", (name,))
        return next(map(self._topic, rows), None)

    async def create_topic(self, topic: Topic) -> None:
        """See `Coordination`."""
        try:
            with self._transaction() as db:
                db.execute(
                    "INSERT INTO topics (name, partitions, configs, topic_id) VALUES (?, ?, ?, ?)",
                    (
                        topic.name,
                        len(topic.assignment),
                        json.dumps(dict(topic.configs)),
                        topic.topic_id.bytes,
                    ),
                )
        except sqlite3.IntegrityError:
            raise TopicExistsError(f"topic {topic.name!r} exists already") from None

    async def begin_delete(self, name: str) -> None:
        """See `Coordination`."""
        with self._transaction() as db:
            db.execute("UPDATE topics SET deleting = 1 WHERE name = ?", (name,))

    async def finish_delete(self, name: str) -> None:
        """See `Coordination`."""
        with self._transaction() as db:
            db.execute("DELETE FROM topics WHERE name = ?", (name,))
            deleted = self.committed.delete_topic(db, name)
        for group, offsets in deleted.items():
            self.committed.observer(group, offsets)

    async def add_partitions(self, name: str, assignment: tuple[int, ...]) -> tuple[int, ...]:
        """See `Coordination`."""
        with self._transaction() as db:
            db.execute("UPDATE topics SET partitions = ? WHERE name = ?", (len(assignment), name))
        return assignment

    async def change_configs(self, name: str, change: ConfigChange) -> Mapping[str, str] | None:
        """See `Coordination`."""
        with self._transaction() as db:
            asked = "SELECT configs FROM topics WHERE name = ? AND NOT deleting"
            row = db.execute(asked, (name,)).fetchone()
            if row is None:
                return None
            configs = dict(change(json.loads(row[0])))
            text = json.dumps(configs)
            db.execute("UPDATE topics SET configs = ? WHERE name = ?", (text, name))
        return configs

    async def allocate_producer_ids(self, count: int) -> int:
        """See `Coordination`."""
        if len(self._producer_ids) < count:
            size = max(count, _PRODUCER_ID_BLOCK)
            with self._transaction() as db:
                first = int(self._fact("next_producer_id") or 0)
                self._set_fact(db, "next_producer_id", str(first + size))
            self._producer_ids = range(first, first + size)
        first = self._producer_ids[0]
        self._producer_ids = self._producer_ids[count:]
        return first

    async def skip_producer_ids(self, first: int) -> None:
        """See `Coordination`."""
        if first > int(self._fact("next_producer_id") or 0):
            with self._transaction() as db:
                self._set_fact(db, "next_producer_id", str(first))

    async def commit_offsets(
        self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], protocol_type: str = ""
    ) -> None:
        """See `Coordination`."""
        self.committed.commit(group, protocol_type, offsets)

    async def offsets(self, group: str) -> dict[PartitionKey, CommittedOffset]:
        """See `Coordination`."""
        return self.committed.of(group)

    async def groups(self) -> dict[str, str]:
        """See `Coordination`."""
        return self.committed.groups()

    async def group_type(self, group: str) -> str | None:
        """See `Coordination`."""
        return self.committed.group_type(group)

    async def has_members(self, group: str) -> bool:  # noqa: ARG002, it is the interface's
        """Return false: decentralized consumers need ZooKeeper."""
        return False

    async def delete_offsets(self, group: str, keys: Iterable[PartitionKey] | None = None) -> None:
        """See `Coordination`."""
        self.committed.delete(group, keys)

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """See `Coordination`."""
        return self._group_configs.all

    async def change_group_configs(self, group: str, change: ConfigChange) -> None:
        """See `Coordination`."""
        self._group_configs.change(group, change)

    async def close(self) -> None:
        """See `Coordination`."""
        self.transactions.close()
        self._db.close()
        self._counter.close()

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Run one transaction. Raises StoreFailureError if it cannot be written."""
        try:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute(_COUNT_COMMIT, (str(self._commits + 1),))
            self._db.execute("COMMIT")
            self._commits += 1
            self._counter.record(self._commits, flushed=durable)
            self._write_failures.recovered({})
        except sqlite3.OperationalError as error:
            self._write_failures.failed(error, {})
            raise StoreFailureError(f"the coordination store: {error}") from None
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _lost(self) -> CorruptError:
        more = ", ..." if len(self._logs) > 5 else ""
        return CorruptError(
            f"the coordination store {self._path} is missing or empty, and logs lie beside it:"
            f" {', '.join(self._logs[:5])}{more}",
            fix=f"restore it from a copy (docs/backup.md), or run {_ADOPT}",
        )

    def _begin_counting(self, *, adopting: bool) -> None:
        """Compare the commits with their counter, unless the operator gives up what is lost."""
        try:
            if adopting:
                self._counter.begin_again(self._commits)
            else:
                self._counter.begin(self._path, lambda: self._commits, _DAMAGED)
        except CorruptError:
            self._counter.close()
            self._db.close()
            raise

    def _cluster_id(self) -> str:
        known = self._fact("cluster_id")
        if known is not None:
            return known
        new = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with self._transaction() as db:
            self._set_fact(db, "cluster_id", new)
        return new

    def _fact(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    @staticmethod
    def _set_fact(db: sqlite3.Connection, name: str, value: str) -> None:
        db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
