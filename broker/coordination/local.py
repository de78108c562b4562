"""The coordination store of a single broker: an SQLite file in its data folder.

Rules:

- Every change is one transaction.
- Topics and producer ids are on disk when the call returns. Ids are allocated in blocks, so that
  a client that asks for many does not keep the disk busy.
- Committed offsets are in the write-ahead log, which survives the process but not a power cut.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headworks._broker.coordination.interface import (
    ClusterMember,
    CommittedOffset,
    ConfigChange,
    PartitionKey,
    StoreFailureError,
    Topic,
    TopicExistsError,
)
from headworks._broker.repeated_failure import RepeatedFailure
from headworks.errors import CorruptError, UsageError

__all__ = ["LocalCoordination"]

_log = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS topics (
    name TEXT PRIMARY KEY, partitions INTEGER NOT NULL, configs TEXT NOT NULL,
    deleting INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS offsets (
    member_group TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL,
    PRIMARY KEY (member_group, topic, partition)) WITHOUT ROWID;
"""
_SELECT_TOPICS = "SELECT name, partitions, configs, deleting FROM topics"
_PRODUCER_ID_BLOCK = 1000


class LocalCoordination:
    """The store in the file `path`, created if it is missing. `broker` has all partitions."""

    lease_valid = True  # the lock of the data folder excludes other brokers

    def __init__(self, path: Path, broker: int = 1) -> None:
        self.members: dict[int, ClusterMember] = {}
        self._broker = broker
        self._producer_ids = range(0)  # producer ids that are allocated but not used
        self._write_failures = RepeatedFailure(_log, "the coordination store cannot be written now")
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(_TABLES)
        except sqlite3.OperationalError as error:
            raise UsageError(
                f"the coordination store {path} cannot be opened: {error}",
                fix="check the permissions of the folder and the free space of its disk",
            ) from None
        except sqlite3.DatabaseError as error:
            raise CorruptError(
                f"{path} is not a readable coordination store: {error}",
                fix="restore it from a copy; the logs beside it are untouched",
            ) from None
        self.cluster_id = self._cluster_id()

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

    def _topic(self, row: tuple[str, int, str, int]) -> Topic:
        name, count, configs, deleting = row
        own = (self._broker,)
        return Topic(name, own * count, json.loads(configs), bool(deleting), own)

    async def read_topic(self, name: str) -> Topic | None:
        """See `Coordination`."""
        rows = self._db.execute(f"{_SELECT_TOPICS} WHERE name = ?", (name,))
        return next(map(self._topic, rows), None)

    async def create_topic(self, topic: Topic) -> None:
        """See `Coordination`."""
        try:
            with self._transaction() as db:
                db.execute(
                    "INSERT INTO topics (name, partitions, configs) VALUES (?, ?, ?)",
                    (topic.name, len(topic.assignment), json.dumps(dict(topic.configs))),
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
            db.execute("DELETE FROM offsets WHERE topic = ?", (name,))

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

    async def commit_offsets(
        self, group: str, offsets: Mapping[PartitionKey, CommittedOffset]
    ) -> None:
        """See `Coordination`."""
        with self._transaction(durable=False) as db:
            db.executemany(
                "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (group, topic, partition, at.offset, at.leader_epoch, at.metadata)
                    for (topic, partition), at in offsets.items()
                ],
            )

    async def offsets(self, group: str) -> dict[PartitionKey, CommittedOffset]:
        """See `Coordination`."""
        rows = self._db.execute(
            "SELECT topic, partition, next_offset, leader_epoch, metadata FROM offsets"
            " WHERE member_group = ?",
            (group,),
        )
        return {(topic, partition): CommittedOffset(*at) for topic, partition, *at in rows}

    async def groups(self) -> list[str]:
        """See `Coordination`."""
        rows = self._db.execute("SELECT DISTINCT member_group FROM offsets")
        return [group for (group,) in rows]

    async def has_offsets(self, group: str) -> bool:
        """See `Coordination`."""
        asked = "SELECT 1 FROM offsets WHERE member_group = ? LIMIT 1"
        return self._db.execute(asked, (group,)).fetchone() is not None

    async def has_members(self, group: str) -> bool:  # noqa: ARG002, it is the interface's
        """Return false: decentralized consumers need ZooKeeper."""
        return False

    async def delete_offsets(self, group: str, keys: Iterable[PartitionKey] | None = None) -> None:
        """See `Coordination`."""
        with self._transaction(durable=False) as db:
            if keys is None:
                db.execute("DELETE FROM offsets WHERE member_group = ?", (group,))
            else:
                db.executemany(
                    "DELETE FROM offsets WHERE member_group = ? AND topic = ? AND partition = ?",
                    [(group, *key) for key in keys],
                )

    async def close(self) -> None:
        """See `Coordination`."""
        self._db.close()

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Run one transaction. Raises StoreFailureError if it cannot be written."""
        try:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
            self._write_failures.recovered({})
        except sqlite3.OperationalError as error:
            self._write_failures.failed(error, {})
            raise StoreFailureError(f"the coordination store: {error}") from None
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

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
