"""Rows that are inserted, or merged into existing ones, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, case, func
from sqlalchemy.dialects import postgresql, sqlite

from headworks._server.database import PreparedStatement


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
    if_later: tuple[str, tuple[str, ...]] = ("", ()),
) -> None:
    """Insert rows, or merge each into the one with its key: column by column, as the names say.

    `if_later` is a time and columns that are replaced, with it, unless the row has a later time.
    """
    if not rows:
        return
    merges = (tuple(names) for names in (added, least, most, newest, replaced))
    statement = _statement(connection.dialect.name, table, tuple(rows[0]), *merges, if_later)
    statement.run_each(connection, rows)


@cache
def _statement(
    dialect: str,
    table: Table,
    columns: tuple[str, ...],
    added: tuple[str, ...],
    least: tuple[str, ...],
    most: tuple[str, ...],
    newest: tuple[str, ...],
    replaced: tuple[str, ...],
    if_later: tuple[str, tuple[str, ...]],
) -> PreparedStatement:
    statement = (postgresql if dialect == "postgresql" else sqlite).insert(table)
    old, new = table.c, statement.excluded
    merged: dict[str, Any] = {name: old[name] + new[name] for name in added}
    merged |= {n: case((new[n] < old[n], new[n]), else_=old[n]) for n in least}
    merged |= {n: case((new[n] > old[n], new[n]), else_=old[n]) for n in most}
    merged |= {n: func.coalesce(new[n], old[n]) for n in newest}
    merged |= {n: new[n] for n in replaced}
    time, later = if_later
    if time:
        earlier = old[time] > new[time]
        merged |= {n: case((earlier, old[n]), else_=new[n]) for n in (time, *later)}
    keys = [column.name for column in table.primary_key]
    changed = statement.on_conflict_do_update(index_elements=keys, set_=merged)
    return PreparedStatement(changed, columns)
