"""One transaction of several writers, which run one after the other and are flushed together.

Rules:

- A member sees the changes of the members before it. None is acknowledged before all are on disk.
- The first member raises the revision of the store, which is that of all of them.
- A member that fails takes back its own changes only. If it is the only one, nothing is committed.
- If that is impossible, nothing is committed and all members fail: a database may end the whole
  transaction by itself, as SQLite does when the disk is full.
- A group is bounded in members and in time, so that its first member does not wait for long.
- The group is used by one thread at a time: its owner holds a lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from headworks._server.database.prepared import run_script, run_text

_MAX_MEMBERS = 64  # those that fail are counted too
_MAX_SECONDS = 0.05

_SAVE = "SAVEPOINT member"
# Those that are not released pile up: SQLite then writes each changed page to a temporary file.
_SAVE_AGAIN = ("RELEASE SAVEPOINT member", _SAVE)


class WriteGroup:
    """An open transaction on a connection of the engine."""

    def __init__(self, engine: Engine) -> None:
        self.connection = engine.connect()
        self.members = 0  # that have changed something
        self.revision = 0  # of the store with their changes
        self.ended = Event()
        self.error: BaseException | None = None  # why no member is committed
        self._tried = 0
        self._saved = False  # whether there is a savepoint
        self._began = time.monotonic()
        try:
            self._transaction = self.connection.begin()
        except BaseException:
            self.connection.close()
            raise

    @property
    def may_grow(self) -> bool:
        """Whether another member may come."""
        if not self.members or self.error is not None or self._tried >= _MAX_MEMBERS:
            return False
        return time.monotonic() - self._began < _MAX_SECONDS

    @contextmanager
    def member(self, raise_revision: Callable[[Connection], int]) -> Iterator[None]:
        """Run one writer inside the block; its error takes back its changes.

        `raise_revision` raises the revision of the store, and returns it.
        """
        self._tried += 1
        first = not self.members  # an error of the first one takes back everything
        with self._failing_all(unless=first):
            if first:
                self.revision = raise_revision(self.connection)
            else:
                run_script(self.connection, _SAVE_AGAIN if self._saved else (_SAVE,))
                self._saved = True
        try:
            yield
        except BaseException:
            if not first:
                with self._failing_all():
                    run_text(self.connection, "ROLLBACK TO SAVEPOINT member")
            raise
        self.members += 1

    @contextmanager
    def _failing_all(self, *, unless: bool = False) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.error = None if unless else error
            raise

    def commit(self) -> None:
        """Commit what all members have changed."""
        try:
            self._transaction.commit()
        except BaseException:
            with suppress(SQLAlchemyError):
                self._transaction.rollback()
            raise
        finally:
            self.connection.close()

    def abandon(self) -> None:
        """Roll everything back."""
        try:
            self._transaction.rollback()
        finally:
            self.connection.close()

    def wait(self, seconds: float) -> bool:
        """Wait for the commit; return whether it has come. Raises why there was none."""
        ended = self.ended.wait(seconds)
        if ended and self.error is not None:
            raise self.error
        return ended
