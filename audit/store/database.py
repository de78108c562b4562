"""Opens the reconciler's store.

Rule: a step that has been released is never edited; a change of the tables is a new step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, insert

from headworks._audit.store import tables
from headworks._server.database import Database, Step, now_ms

__all__ = ["AuditStore"]


def _first_tables(connection: Connection) -> None:
    tables.metadata.create_all(connection)
    connection.execute(insert(tables.own.state).values(id=1, revision=0))


_STEPS: Sequence[Step] = (("first tables", _first_tables),)


class AuditStore(Database):
    """The store at a URL (`sqlite:///FILE`, `postgresql://..`). Errors are those of `Database`."""

    def __init__(self, store: str, *, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(store, tables.own, _STEPS, clock=clock)
