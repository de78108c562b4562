"""The committed offsets in the coordination store of a single broker.

Rules:

- A commit is in SQLite's write-ahead log when the call returns, which survives the process.
- An observer learns of a change after it is stored, in the order of the changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from uuid import UUID

from headworks._broker.coordination.committed_offset import CommittedOffset
from headworks._broker.coordination.interface import PartitionKey

TABLES = """
CREATE TABLE IF NOT EXISTS offsets (
    member_group TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL,
    topic_id BLOB,
    PRIMARY KEY (member_group, topic, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS group_types (
    member_group TEXT PRIMARY KEY, protocol_type TEXT NOT NULL) WITHOUT ROWID;
"""
# Takes a group and its changed offsets; None: that offset was deleted
OffsetObserver = Callable[[str, Mapping[PartitionKey, CommittedOffset | None]], None]


class LocalOffsets:
    """The offsets. `begin` starts a transaction of the store, and ends it with the block."""

    def __init__(
        self,
        db: sqlite3.Connection,
        begin: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self.observer: OffsetObserver = _ignore
        self._db = db
        self._begin = begin
        self._typed_groups: set[str] = set()  # whose protocol type is stored

    def commit(
        self, group: str, protocol_type: str, offsets: Mapping[PartitionKey, CommittedOffset]
    ) -> None:
        """Store offsets of a group, all or none."""
        with self._begin() as db:
            self.store(db, group, protocol_type, offsets)
        if protocol_type:
            self._typed_groups.add(group)
        self.observer(group, offsets)

    def store(
        self,
        db: sqlite3.Connection,
        group: str,
        protocol_type: str,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> None:
        """Store offsets in a transaction of the caller, who calls the observer afterwards."""
        if protocol_type and group not in self._typed_groups:
            db.execute("INSERT OR REPLACE INTO group_types VALUES (?, ?)", (group, protocol_type))
        db.executemany(
            "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (group, topic, partition, at.offset, at.leader_epoch, at.metadata, _bytes(at))
                for (topic, partition), at in offsets.items()
            ],
        )

    def of(self, group: str) -> dict[PartitionKey, CommittedOffset]:
        """Return the offsets of a group in the topics that exist now."""
        rows = self._db.execute(
            "SELECT topic, partition, next_offset, leader_epoch, metadata, topics.topic_id"
            " FROM offsets JOIN topics ON topics.name = offsets.topic"
            " WHERE member_group = ?"
            " AND coalesce(offsets.topic_id, topics.topic_id) = topics.topic_id",
            (group,),
        )
        return {
            (topic, partition): CommittedOffset(offset, epoch, text, UUID(bytes=topic_id))
            for topic, partition, offset, epoch, text, topic_id in rows
        }

    def topic_ids(self) -> dict[str, UUID]:
        """Return the ids of the topics that offsets are committed in, also of topics not known."""
        rows = self._db.execute("SELECT topic, topic_id FROM offsets WHERE topic_id IS NOT NULL")
        return {topic: UUID(bytes=topic_id) for topic, topic_id in rows}

    def groups(self) -> dict[str, str]:
        """Return the groups that have offsets, and the protocol type of each."""
        rows = self._db.execute(
            "SELECT DISTINCT member_group, coalesce(protocol_type, '')"
            " FROM offsets LEFT JOIN group_types USING (member_group)"
        )
        return dict(rows)

    def group_type(self, group: str) -> str | None:
        """Return the protocol type of a group, "" if it had no members; None without offsets."""
        row = self._db.execute(
            "SELECT coalesce(protocol_type, '') FROM offsets"
            " LEFT JOIN group_types USING (member_group) WHERE member_group = ? LIMIT 1",
            (group,),
        ).fetchone()
        return None if row is None else str(row[0])

    def delete(self, group: str, keys: Iterable[PartitionKey] | None) -> None:
        """Delete offsets of a group: those of `keys`, or all."""
        if keys is None:
            rows = "SELECT topic, partition FROM offsets WHERE member_group = ?"
            deleted = [(topic, index) for topic, index in self._db.execute(rows, (group,))]
        else:
            deleted = list(keys)
        with self._begin() as db:
            db.executemany(
                "DELETE FROM offsets WHERE member_group = ? AND topic = ? AND partition = ?",
                [(group, *key) for key in deleted],
            )
            if keys is None:
                db.execute("DELETE FROM group_types WHERE member_group = ?", (group,))
                self._typed_groups.discard(group)
        self.observer(group, dict.fromkeys(deleted))

    def delete_topic(
        self, db: sqlite3.Connection, topic: str
    ) -> dict[str, dict[PartitionKey, CommittedOffset | None]]:
        """Delete the offsets in a topic, and return them by group, for the observer.

        It is part of a transaction of the caller, who calls the observer afterwards.
        """
        deleted: dict[str, dict[PartitionKey, CommittedOffset | None]] = {}
        rows = "SELECT member_group, partition FROM offsets WHERE topic = ?"
        for group, index in db.execute(rows, (topic,)):
            deleted.setdefault(group, {})[topic, index] = None
        db.execute("DELETE FROM offsets WHERE topic = ?", (topic,))
        db.execute(
            "DELETE FROM group_types WHERE member_group NOT IN (SELECT member_group FROM offsets)"
        )
        self._typed_groups.clear()
        return deleted


def _ignore(group: str, offsets: Mapping[PartitionKey, CommittedOffset | None]) -> None:
    """Do nothing, because nobody observes."""


def _bytes(at: CommittedOffset) -> bytes | None:
    return None if at.topic_id is None else at.topic_id.bytes
