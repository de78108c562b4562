"""One transaction of several writers, which run one after the other and are flushed together.

Rules:

- A member sees the changes of the members before it. None is acknowledged before all are on disk.
- A member that fails takes back its own changes only. If it is the only one, nothing is committed.
- The group is used by one thread at a time: its owner holds a lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from sqlalchemy import Engine


class WriteGroup:
    """An open transaction on a connection of the engine."""

    def __init__(self, engine: Engine) -> None:
        self.connection = engine.connect()
        self.members = 0  # that have changed something
        self.revision = 0  # of the store after the commit
        self.ended = Event()
        self.error: BaseException | None = None  # of the commit
        try:
            self._transaction = self.connection.begin()
        except BaseException:
            self.connection.close()
            raise

    @contextmanager
    def member(self) -> Iterator[None]:
        """Run one writer inside the block; its error takes back its changes."""
        if not self.members:  # an error of the first one takes back everything
            yield
        else:
            self.connection.exec_driver_sql("SAVEPOINT member")
            try:
                yield
            except BaseException:
                self.connection.exec_driver_sql("ROLLBACK TO SAVEPOINT member")
                raise
            self.connection.exec_driver_sql("RELEASE SAVEPOINT member")
        self.members += 1

    def commit(self) -> None:
        """Commit what all members have changed."""
        try:
            self._transaction.commit()
        finally:
            self.connection.close()

    def abandon(self) -> None:
        """Roll everything back."""
        try:
            self._transaction.rollback()
        finally:
            self.connection.close()
            self.ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the commit; return whether it has come. Raises the error of the commit."""
        ended = self.ended.wait(seconds)
        if self.error is not None:
            raise self.error
        return ended
