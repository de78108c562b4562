"""Opens a store and provides transactions.

Rules:

- A request reads in one transaction and writes in one transaction, with no state between them.
- Writers are serialized. A transaction that writes first increments `state.revision`, whose row
  stays locked until it commits. A writer's reads therefore stay valid until it has written, with
  any number of servers on one store and without a leader.
- Writers of one process queue before they take a connection. A database's own queue may be unfair
  (SQLite's is random), and a waiting writer must not keep a connection from readers.
- Writers that queue share one transaction (`write_group`): it is flushed once for all of them. So
  do the writers that one thread runs `together`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, local

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import SQLAlchemyError

from headworks._server.checked_sqlite.commit_counter import CommitCounter
from headworks._server.database import dialects
from headworks._server.database.migrations import Bookkeeping, Step, migrate
from headworks._server.database.planner_statistics import PlannerStatistics
from headworks._server.database.prepared import (
    PreparedStatement,
    takes_several,
)
from headworks._server.database.write_group import WriteGroup
from headworks.errors import HeadworksError, UnreachableError, UsageError


def now_ms() -> int:
    """Return the clock of the store: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


_PATIENCE_SECONDS = 1.0  # of a finished writer whose group nobody ends
_CHECKPOINT_BYTES = 8 << 20  # a start reads so much more, and each checkpoint costs milliseconds


class Database:
    """The store at a URL, migrated by `steps` to its current form; safe to share between threads.

    `store` is `sqlite:///FILE` or `postgresql://..`, and `clock` returns milliseconds since 1970.
    `salvage` is the command that keeps the intact rows of a damaged file. Servers need the
    `whole_check` of a file; commands that only ask do not (`checked_sqlite.sealed_pages`). A store
    whose busy statements are all prepared ones `prepares` (`libpq`). Raises UsageError if the store
    cannot be opened, CorruptError if its file is damaged, and UnreachableError if no database
    answers.
    """

    def __init__(
        self,
        store: str,
        own: Bookkeeping,
        steps: Sequence[Step],
        *,
        salvage: str,
        clock: Callable[[], int] = now_ms,
        whole_check: bool = True,
        prepares: bool = False,
    ) -> None:
        self.clock = clock
        revision = own.state.c.revision
        self._read_revision = PreparedStatement(select(revision))
        raised = update(own.state).values(revision=revision + 1)
        self._add_revision = PreparedStatement(raised)
        self._returned_revision = PreparedStatement(raised.returning(revision))
        self._listeners: list[Callable[[], None]] = []  # called after every change
        self._writer = Lock()  # held by the one writer of this process
        self._counting = Lock()  # guards the next line
        self._queued = 0  # writers that wait for the lock
        self._thread = local()  # of each thread: its looks or its writers share something
        self._group: WriteGroup | None = None  # the open transaction of the writers
        self._salvage = salvage
        self._commits: CommitCounter | None = None
        self._checkpoint_at = _CHECKPOINT_BYTES  # of the log
        self._engine = dialects.connect(store, salvage, whole_check=whole_check, prepares=prepares)
        self._reading = dialects.reading(self._engine)  # the engine with snapshot reads
        self._asking = dialects.asking(self._engine)  # the engine for single statements
        self.useful_readers = dialects.useful_readers(self._engine)  # threads, at a time
        self._writing = dialects.writing(self._engine)  # the engine that locks for writing
        tables = own.state.metadata.tables.values()
        self._statistics = PlannerStatistics(self._asking, tables)
        try:
            with dialects.migrating(self._engine).begin() as connection:
                dialects.lock_for_migration(connection)
                migrate(connection, own, steps, clock())
                dialects.protect_rows(connection)
            self._seal_log()  # before the last connection copies it into the file
            self._engine.dispose()  # the connection that migrated checks no foreign keys
            self._commits = dialects.open_counter(self._engine)
            if self._commits is not None:
                url = self._engine.url
                dialects.begin_counting(self._commits, url, self.revision, salvage)
        except SQLAlchemyError as error:
            self._engine.dispose()
            raise self._cannot_open(error) from None
        except HeadworksError:
            self.close()
            raise

    def _cannot_open(self, error: SQLAlchemyError) -> HeadworksError:
        reason = str(error.__cause__ or error).strip()
        what = f"cannot open the store {self._engine.url.render_as_string()}: {reason}"
        if dialects.is_unreachable(error):
            return UnreachableError(what, fix="start the database, or check the address in --store")
        return UsageError(
            what,
            fix="check the address in --store and its permissions, or restore it (docs/backup.md)"
            f"{dialects.or_salvage(self._engine, self._salvage)}",
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees a snapshot of the store; the first statement begins it."""
        with self._reading.connect() as connection:
            yield connection

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """Open a connection whose statements may each see a newer snapshot of the store.

        Inside of `looking` it stays open for the next look.
        """
        if not getattr(self._thread, "looking", False):
            with self._asking.connect() as connection:
                yield connection
            return
        if self._thread.connection is None:
            self._thread.connection = self._asking.connect()
        try:
            yield self._thread.connection
        except BaseException:  # perhaps of the connection: the next look gets another one
            self._end_looks()
            raise

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Let all looks of this thread inside the block share a connection."""
        self._thread.looking, self._thread.connection = True, None
        try:
            yield
        finally:
            self._thread.looking = False
            self._end_looks()

    def _end_looks(self) -> None:
        connection, self._thread.connection = self._thread.connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):  # the pool drops it, and no look has failed
                connection.close()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that changes the store; no other writer runs at the same time.

        Returns when the change is on disk, perhaps together with those of other threads. Inside of
        `together` it returns before that.
        """
        if getattr(self._thread, "together", False):
            with self._member() as connection:
                yield connection
            return
        self._queue()
        group = None
        try:
            try:
                with self._member() as connection:
                    group = self._group
                    yield connection
            finally:
                with self._counting:
                    more = self._queued > 0
                if self._group is not None and not (more and self._group.may_grow):
                    self._end_group(self._group)
        finally:
            self._writer.release()
        while group is not None and not group.wait(_PATIENCE_SECONDS):
            with self._writer:  # an interrupt took the writer away that was to end the group
                if self._group is group:
                    self._end_group(group)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let all writers of this thread inside the block share a transaction, flushed at its end.

        Raises its error: no change of a writer inside the block is then in the store.
        """
        self._queue()
        self._thread.together = True
        try:
            yield
        finally:
            self._thread.together = False
            try:
                group = self._group
                if group is not None:
                    self._end_group(group)
                    group.wait(0)
            finally:
                self._writer.release()

    @contextmanager
    def _member(self) -> Iterator[Connection]:
        """Run one writer in the open group; the caller is the one writer."""
        group = self._group
        if group is None:
            group = self._group = WriteGroup(self._writing)
        if group.error is not None:
            raise group.error
        try:
            with group.member(self._raise_revision):
                yield group.connection
        finally:
            if not group.members:  # the first one failed, and its changes are in the transaction
                self._end_group(group)

    def _queue(self) -> None:
        """Wait until this thread is the one writer."""
        with self._counting:
            self._queued += 1
        try:
            self._writer.acquire()
        finally:
            with self._counting:
                self._queued -= 1

    def _raise_revision(self, connection: Connection) -> int:
        """Raise the revision; return the new one."""
        if dialects.can_return(connection):
            return int(self._returned_revision.scalar(connection, {}))
        self._add_revision.run(connection, {})
        return self.revision_in(connection)

    def _end_group(self, group: WriteGroup) -> None:
        """Commit the group, record it, and let its threads return; the last member calls this."""
        self._group = None
        try:
            if not group.members or group.error is not None:
                group.abandon()
                return
            group.commit()
            if self._commits is not None:
                self._commits.record(group.revision, flushed=True)
                self._checkpoint_if_due()
            for listener in self._listeners:
                listener()
            self._statistics.changed(group.members)
        except BaseException as error:
            group.error = group.error or error
            raise
        finally:
            group.ended.set()

    def _checkpoint_if_due(self) -> None:
        """Checkpoint a long log. One that a reader needs is left to grow before the next try."""
        size = dialects.log_bytes(self._engine)
        if size < self._checkpoint_at:
            self._checkpoint_at = min(self._checkpoint_at, size + _CHECKPOINT_BYTES)
            return
        dialects.checkpoint(self._engine)
        self._checkpoint_at = size + _CHECKPOINT_BYTES

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change by this process, before the writer returns."""
        self._listeners.append(listener)

    def revision(self, reader: Connection | None = None) -> int:
        """Return a number that grows with every change of the store.

        SQLite is asked on the reader's connection, which saves another one.
        """
        if reader is not None and not takes_several(reader.dialect):
            return int(self._read_revision.scalar_alone(reader) or 0)
        with self._asking.connect() as connection:
            return int(self._read_revision.scalar_alone(connection) or 0)

    def revision_in(self, connection: Connection) -> int:
        """Return the revision that a transaction sees."""
        return int(self._read_revision.scalar(connection, {}) or 0)

    def close(self) -> None:
        """Close every connection. The last one checkpoints, so the pages are sealed before."""
        if self._commits is not None:
            self._seal_log()
            self._commits.close()
            self._commits = None
        self._engine.dispose()

    def _seal_log(self) -> None:
        if dialects.log_bytes(self._engine):
            dialects.checkpoint(self._engine)
