"""The transactions in the coordination store of a single broker: tables of its SQLite file.

A write only fills the write-ahead log, which takes the event loop some microseconds. `durable` then
syncs that log in a thread, and one sync serves all who wait. SQLite recovers a prefix of its log,
so a power cut never keeps a write without those before it.

Rules:

- Offsets become committed in the same SQLite transaction in which their transaction completes.
- After a failed sync nothing counts as durable until the broker restarts: the kernel may have
  dropped the pages.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import UUID

from headworks import _system_calls
from headworks._atomic_file import sync_folder
from headworks._broker.coordination.committed_offset import CommittedOffset
from headworks._broker.coordination.interface import StoreFailureError
from headworks._broker.coordination.local_offsets import LocalOffsets
from headworks._broker.coordination.transaction_store import (
    PendingOffset,
    ProducerTransaction,
    TransactionPartition,
    TransactionState,
    by_group,
)

TABLES = """
CREATE TABLE IF NOT EXISTS transactions (
    transactional_id TEXT PRIMARY KEY, principal TEXT NOT NULL, producer_id INTEGER NOT NULL,
    epoch INTEGER NOT NULL, last_epoch INTEGER NOT NULL, timeout_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, state TEXT NOT NULL,
    partitions TEXT NOT NULL, member_groups TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending_offsets (
    transactional_id TEXT NOT NULL, member_group TEXT NOT NULL, topic TEXT NOT NULL,
    partition INTEGER NOT NULL, next_offset INTEGER NOT NULL, leader_epoch INTEGER NOT NULL,
    metadata TEXT NOT NULL, topic_id BLOB, protocol_type TEXT NOT NULL,
    PRIMARY KEY (transactional_id, member_group, topic, partition)) WITHOUT ROWID;
"""
_SELECT = (
    "SELECT transactional_id, principal, producer_id, epoch, last_epoch, timeout_ms, updated_ms,"
    " started_ms, state, partitions, member_groups FROM transactions"
)
_SELECT_PENDING = (
    "SELECT transactional_id, member_group, topic, partition, next_offset, leader_epoch, metadata,"
    " topic_id, protocol_type FROM pending_offsets"
)
# Starts an SQLite transaction, and ends it with the block
Begin = Callable[[], AbstractContextManager[sqlite3.Connection]]


class LocalTransactions:
    """The transactions in the SQLite file `path`, which `begin` writes to."""

    def __init__(self, path: Path, begin: Begin, offsets: LocalOffsets) -> None:
        self._path = path
        self._begin = begin
        self._offsets = offsets
        self._fd = -1  # of the write-ahead log
        self._running: asyncio.Task[None] | None = None  # a sync
        self._next: asyncio.Task[None] | None = None  # the sync after `_running`
        self._failure = ""  # of a sync

    def load(self) -> list[tuple[ProducerTransaction, list[PendingOffset]]]:
        """See `TransactionStore`."""
        with self._begin() as db:
            pending: dict[str, list[PendingOffset]] = {}
            for (
                transactional_id,
                group,
                topic,
                index,
                offset,
                epoch,
                text,
                topic_id,
                protocol_type,
            ) in db.execute(_SELECT_PENDING):
                known = None if topic_id is None else UUID(bytes=topic_id)
                committed = CommittedOffset(offset, epoch, text, known)
                found = PendingOffset(group, topic, index, committed, protocol_type)
                pending.setdefault(transactional_id, []).append(found)
            return [(_transaction(row), pending.get(row[0], [])) for row in db.execute(_SELECT)]

    def save(self, transaction: ProducerTransaction) -> None:
        """See `TransactionStore`."""
        with self._begin() as db:
            _save(db, transaction)

    def add_offsets(self, transactional_id: str, offsets: Iterable[PendingOffset]) -> None:
        """See `TransactionStore`."""
        with self._begin() as db:
            db.executemany(
                "INSERT OR REPLACE INTO pending_offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        transactional_id,
                        one.group,
                        one.topic,
                        one.partition,
                        one.committed.offset,
                        one.committed.leader_epoch,
                        one.committed.metadata,
                        None if one.committed.topic_id is None else one.committed.topic_id.bytes,
                        one.protocol_type,
                    )
                    for one in offsets
                ],
            )

    def complete(
        self, transaction: ProducerTransaction, committed: Iterable[PendingOffset]
    ) -> None:
        """See `TransactionStore`."""
        groups = by_group(committed)
        with self._begin() as db:
            for (group, protocol_type), offsets in groups.items():
                self._offsets.store(db, group, protocol_type, dict(offsets))
            _save(db, transaction)
            _forget_offsets(db, [transaction.transactional_id])
        for (group, _), offsets in groups.items():
            self._offsets.observer(group, dict(offsets))

    def remove(self, transactional_ids: Iterable[str]) -> None:
        """See `TransactionStore`."""
        names = list(transactional_ids)
        with self._begin() as db:
            _forget_offsets(db, names)
            db.executemany(
                "DELETE FROM transactions WHERE transactional_id = ?", [(name,) for name in names]
            )

    async def durable(self) -> None:
        """See `TransactionStore`."""
        if self._next is None:
            self._next = asyncio.create_task(self._sync_after(self._running))
        await asyncio.shield(self._next)

    def close(self) -> None:
        """Close the write-ahead log."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    async def _sync_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None  # later callers wait for another
        try:
            if self._failure:
                raise StoreFailureError(self._failure)
            await asyncio.to_thread(self._sync)
        except OSError as error:
            self._failure = f"the coordination store cannot be flushed: {error}"
            raise StoreFailureError(self._failure) from error

    def _sync(self) -> None:
        if self._fd < 0:
            log = self._path.with_name(f"{self._path.name}-wal")
            # No other file of SQLite may be opened here: closing it would drop SQLite's locks
            self._fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
            sync_folder(self._path.parent)
        _system_calls.sync_data(self._fd)


def _save(db: sqlite3.Connection, one: ProducerTransaction) -> None:
    partitions = [[topic, index, topic_id.hex] for topic, index, topic_id in one.partitions]
    db.execute(
        "INSERT OR REPLACE INTO transactions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            one.transactional_id,
            one.principal,
            one.producer_id,
            one.epoch,
            one.last_epoch,
            one.timeout_ms,
            one.updated_ms,
            one.started_ms,
            one.state.value,
            json.dumps(partitions),
            json.dumps(list(one.groups)),
        ),
    )


def _forget_offsets(db: sqlite3.Connection, transactional_ids: Iterable[str]) -> None:
    db.executemany(
        "DELETE FROM pending_offsets WHERE transactional_id = ?",
        [(name,) for name in transactional_ids],
    )


def _transaction(
    row: tuple[str, str, int, int, int, int, int, int, str, str, str],
) -> ProducerTransaction:
    name, principal, producer_id, epoch, last_epoch, timeout, updated, started, state = row[:9]
    partitions = frozenset(
        TransactionPartition(topic, index, UUID(hex=topic_id))
        for topic, index, topic_id in json.loads(row[9])
    )
    return ProducerTransaction(
        name,
        principal,
        producer_id,
        epoch,
        timeout,
        updated,
        last_epoch,
        TransactionState(state),
        started,
        partitions,
        frozenset(json.loads(row[10])),
    )
