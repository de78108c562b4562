"""How a store comes to its present form: a numbered list of steps, each applied once.

Rules:

- A step that has been released is never edited; a change of the tables is a new step.
- All steps that a store lacks are applied in one transaction, under the lock that writers take.
- A store with a step that this program does not know is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, func, insert, inspect, select

from headworks.errors import UsageError
from registry.store import tables

__all__ = ["migrate"]


def _first_tables(connection: Connection) -> None:
    tables.metadata.create_all(connection)
    connection.execute(insert(tables.state).values(id=1, revision=0))


_STEPS: Sequence[tuple[str, Callable[[Connection], None]]] = (("first tables", _first_tables),)


def migrate(connection: Connection, now_ms: int) -> None:
    """Apply, inside the caller's transaction, every step that the store lacks.

    Raises UsageError if the store was written by a newer program.
    """
    done = 0
    if inspect(connection).has_table(tables.migrations.name):
        done = connection.scalar(select(func.max(tables.migrations.c.number))) or 0
    if done > len(_STEPS):
        raise UsageError(
            f"the store is at migration {done}, and this program knows {len(_STEPS)}",
            fix="use the version of Headworks that wrote it, or a newer one",
        )
    for number, (what, step) in enumerate(_STEPS, start=1):
        if number > done:
            step(connection)
            connection.execute(
                insert(tables.migrations).values(number=number, what=what, applied_ms=now_ms)
            )
