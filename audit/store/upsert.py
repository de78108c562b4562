"""Rows that are inserted, or merged into existing ones, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, case, func
from sqlalchemy.dialects import postgresql, sqlite


def upsert(
    connection: Connection,
    table: Table,
    rows: list[dict[str, Any]],
    *,
    added: Sequence[str] = (),
    least: Sequence[str] = (),
    most: Sequence[str] = (),
    newest: Sequence[str] = (),
    replaced: Sequence[str] = (),
    if_later: tuple[str, Sequence[str]] = ("", ()),
) -> None:
    """Insert rows, or merge each into the one with its key: column by column, as the names say.

    `if_later` is a time and columns that are replaced, with it, unless the row has a later time.
    """
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    old, new = table.c, statement.excluded
    merged: dict[str, Any] = {name: old[name] + new[name] for name in added}
    merged |= {n: case((new[n] < old[n], new[n]), else_=old[n]) for n in least}
    merged |= {n: case((new[n] > old[n], new[n]), else_=old[n]) for n in most}
    merged |= {n: func.coalesce(new[n], old[n]) for n in newest}
    merged |= {n: new[n] for n in replaced}
    time, columns = if_later
    if time:
        earlier = old[time] > new[time]
        merged |= {n: case((earlier, old[n]), else_=new[n]) for n in (time, *columns)}
    keys = [column.name for column in table.primary_key]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=merged), rows)
