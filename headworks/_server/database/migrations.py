"""Migrations: the numbered steps that bring a store to its current form, each applied once.

Rules:

- A released step is never edited. A change of the tables is a new step.
- All missing steps are applied in one transaction, under the writers' lock.
- A store with a step that this program does not know is refused.
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

Step = tuple[str, Callable[[Connection], None]]


@dataclass(frozen=True, slots=True)
class Bookkeeping:
    """The two tables that every store has."""

    migrations: Table  # the applied steps
    state: Table  # one row; every writer changes it first, which serializes writers


def bookkeeping(metadata: MetaData, *, prefix: str = "") -> Bookkeeping:
    """Declare the two tables; `prefix` separates two parts in one database."""
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
    """Apply every missing step inside the caller's transaction.

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
