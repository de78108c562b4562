"""Lets PostgreSQL count the rows of a store that grows, so that its planner uses the indexes.

PostgreSQL counts them itself, but only a minute or more after they came. Until then, the prepared
statements of a store that is filled at once search all of its rows: they were planned for empty
tables.

Rules:

- The rows are counted after FIRST changes, and again after twice as many each time. So a store is
  never searched as if it were far smaller, and the counting costs less and less.
- No request waits for it, and none fails for it. A table that is locked is left out.
- SQLite needs none of this: its planner does not look at the number of rows.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from threading import Thread
from typing import Final

from sqlalchemy import Engine, Table, text
from sqlalchemy.exc import SQLAlchemyError

FIRST: Final = 64
_log = logging.getLogger(__name__)


class PlannerStatistics:
    """Has the tables analyzed on connections of an engine that opens no transactions.

    It is used by one thread at a time.
    """

    def __init__(self, engine: Engine, tables: Collection[Table]) -> None:
        self._engine = engine
        prepare = engine.dialect.identifier_preparer
        names = ", ".join(prepare.format_table(table) for table in tables)
        self._analyze = text(f"ANALYZE (SKIP_LOCKED) {names}")
        self._is_needed = engine.dialect.name == "postgresql"
        self._changes = 0  # since the last time
        self._due = FIRST

    def changed(self, count: int) -> None:
        """Note so many committed changes; have the rows counted in a thread if that is due."""
        self._changes += count
        if self._is_needed and self._changes >= self._due:
            self._changes, self._due = 0, 2 * self._due
            with suppress(RuntimeError):  # no further thread may start: the next time is enough
                Thread(target=self._run, name="planner-statistics", daemon=True).start()

    def _run(self) -> None:
        try:
            with self._engine.connect() as connection:
                connection.execute(self._analyze)
        except SQLAlchemyError as error:
            _log.warning("PostgreSQL's statistics are not up to date: %s", error)
