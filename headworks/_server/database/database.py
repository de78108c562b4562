"""Opens a store and hands out transactions.

Rules:

- A request reads in one transaction and writes in one transaction; nothing is kept between them.
- Writers wait for each other: each one first moves `state.revision`, whose row stays locked until
  it commits. So what a writer reads stays true until it has written, with any number of servers
  on one store and no leader among them.
- Those of one process queue before they take a connection: a database's own queue may be unfair
  (SQLite's is a matter of luck), and a waiting writer must not keep readers from a connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import SQLAlchemyError

from headworks._server.database import dialects
from headworks._server.database.migrations import Bookkeeping, Step, migrate
from headworks.errors import HeadworksError, UnreachableError, UsageError

__all__ = ["Database", "now_ms"]


def now_ms() -> int:
    """The clock of the store: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Database:
    """The store at a URL, migrated by `steps` to its present form; safe to share between threads.

    `store` is `sqlite:///FILE` or `postgresql://..`; `clock` gives milliseconds since 1970.
    Raises UsageError if it cannot be opened, UnreachableError if no database answers there.
    """

    def __init__(
        self,
        store: str,
        own: Bookkeeping,
        steps: Sequence[Step],
        *,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.clock = clock
        self._state = own.state
        self._listeners: list[Callable[[], None]] = []
        self._turn = Lock()
        self._engine = dialects.connect(store)
        self._reading = dialects.reading(self._engine)
        self._writing = dialects.writing(self._engine)
        try:
            with self._writing.begin() as connection:
                dialects.lock_for_migration(connection)
                migrate(connection, own, steps, clock())
        except SQLAlchemyError as error:
            self._engine.dispose()
            raise self._cannot_open(error) from None

    def _cannot_open(self, error: SQLAlchemyError) -> HeadworksError:
        reason = str(error.__cause__ or error).strip()
        what = f"cannot open the store {self._engine.url.render_as_string()}: {reason}"
        if dialects.is_unreachable(error):
            return UnreachableError(what, fix="start the database, or check the address in --store")
        return UsageError(
            what, fix="check the address given with --store, and who may read and write there"
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees the store as it is at one moment."""
        with self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that changes the store; no other writer runs meanwhile."""
        with self._turn, self._writing.begin() as connection:
            connection.execute(update(self._state).values(revision=self._state.c.revision + 1))
            yield connection
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change made here, before its maker hears of success."""
        self._listeners.append(listener)

    def revision(self) -> int:
        """A number that grows with every change of the store."""
        with self._reading.begin() as connection:
            return int(connection.scalar(select(self._state.c.revision)) or 0)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()
