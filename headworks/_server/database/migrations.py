"""How a store comes to its present form: a numbered list of steps, each applied once.

Rules:

- A step that has been released is never edited; a change of the tables is a new step.
- All steps that a store lacks are applied in one transaction, under the lock that writers take.
- A store with a step that this program does not know is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
)

from headworks.errors import UsageError

__all__ = ["Bookkeeping", "Step", "bookkeeping", "migrate"]

Step = tuple[str, Callable[[Connection], None]]


@dataclass(frozen=True, slots=True)
class Bookkeeping:
    """The two tables that every store has.

    `state` has one row: every writer changes it first, which makes writers wait for each other on
    any database.
    """

    migrations: Table
    state: Table


def bookkeeping(metadata: MetaData, *, prefix: str = "") -> Bookkeeping:
    """The tables, declared among a part's own; `prefix` keeps two parts in one database apart."""
    return Bookkeeping(
        Table(
            f"{prefix}schema_migrations",
            metadata,
            Column("number", Integer, primary_key=True, autoincrement=False),
            Column("what", String, nullable=False),
            Column("applied_ms", BigInteger, nullable=False),
        ),
        Table(
            f"{prefix}state",
            metadata,
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("revision", BigInteger, nullable=False),
        ),
    )


def migrate(connection: Connection, own: Bookkeeping, steps: Sequence[Step], now_ms: int) -> None:
    """Apply, inside the caller's transaction, every step that the store lacks.

    Raises UsageError if the store was written by a newer program.
    """
    done = 0
    if inspect(connection).has_table(own.migrations.name):
        done = connection.scalar(select(func.max(own.migrations.c.number))) or 0
    if done > len(steps):
        raise UsageError(
            f"the store is at migration {done}, and this program knows {len(steps)}",
            fix="use the version of Headworks that wrote it, or a newer one",
        )
    for number, (what, step) in enumerate(steps, start=1):
        if number > done:
            step(connection)
            connection.execute(
                insert(own.migrations).values(number=number, what=what, applied_ms=now_ms)
            )
