"""Opens the reconciler's store.

Rule: a step that has been released is never edited; a change of the tables is a new step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, insert, inspect, literal, select
from sqlalchemy.schema import CreateColumn

from headworks._audit.store import tables
from headworks._server.database import Database, Step, now_ms

SALVAGE = "headworks audit salvage"


def _first_tables(connection: Connection) -> None:
    tables.metadata.create_all(connection)
    connection.execute(insert(tables.own.state).values(id=1, revision=0))


def _log_positions(connection: Connection) -> None:
    """Add the columns and the table of cuts to a store that was made without them."""
    tables.log_positions.create(connection, checkfirst=True)
    known = {column["name"] for column in inspect(connection).get_columns(tables.windows.name)}
    for column in (tables.windows.c.passed, tables.windows.c.marked):
        if column.name not in known:
            definition = CreateColumn(column).compile(connection)
            connection.exec_driver_sql(f"ALTER TABLE {tables.windows.name} ADD COLUMN {definition}")
    for index in tables.windows.indexes:
        index.create(connection, checkfirst=True)


def _processes(connection: Connection) -> None:
    """Add the table of heartbeats to a store that was made without it."""
    tables.processes.create(connection, checkfirst=True)


def _volumes(connection: Connection) -> None:
    """Add the table of usual volumes to a store that was made without it."""
    tables.volumes.create(connection, checkfirst=True)


def _samples(connection: Connection) -> None:
    """Add the table of samples to a store that was made without it."""
    tables.samples.create(connection, checkfirst=True)


def _schema_uses(connection: Connection) -> None:
    """Add the table of who uses which schema. Earlier reports were not counted by it."""
    tables.schema_uses.create(connection, checkfirst=True)
    known = select(
        tables.topics.c.topic,
        literal(tables.NOT_COUNTED),
        literal(tables.NOT_COUNTED),
        tables.topics.c.tier,
        literal(""),
        literal(""),
        literal(0),
        tables.topics.c.first_sent,
        tables.topics.c.last_sent,
    )
    columns = [column.name for column in tables.schema_uses.columns]
    connection.execute(insert(tables.schema_uses).from_select(columns, known))


_STEPS: Sequence[Step] = (
    ("first tables", _first_tables),
    ("log positions", _log_positions),
    ("processes", _processes),
    ("volumes", _volumes),
    ("samples", _samples),
    ("schema uses", _schema_uses),
)


class AuditStore(Database):
    """The store at a URL (`sqlite:///FILE`, `postgresql://..`).

    `whole_check` and the errors are those of `Database`.
    """

    def __init__(
        self, store: str, *, clock: Callable[[], int] = now_ms, whole_check: bool = True
    ) -> None:
        super().__init__(
            store, tables.own, _STEPS, salvage=SALVAGE, clock=clock, whole_check=whole_check
        )
