"""The registry's store, and the migrations of its tables.

Rule: a step that has been released is never edited; a change of the tables is a new step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, insert

from headworks._registry.store import tables
from headworks._server import database
from headworks._server.database import Step, now_ms

__all__ = ["RegistryStore", "now_ms"]

SALVAGE = "headworks registry salvage"


def _first_tables(connection: Connection) -> None:
    tables.metadata.create_all(connection)
    connection.execute(insert(tables.state).values(id=1, revision=0))


_STEPS: Sequence[Step] = (("first tables", _first_tables),)


class RegistryStore(database.Database):
    """The store at a URL; raises the errors of `headworks._server.database.Database`."""

    def __init__(self, store: str, *, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(store, tables.own, _STEPS, salvage=SALVAGE, clock=clock, prepares=True)
