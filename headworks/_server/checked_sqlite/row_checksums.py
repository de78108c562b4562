"""The checksum of each row, in a generated column of its table.

Rules:

- SQLite computes the column at every write, so no statement of a part mentions it. A connection
  that writes must have the function: `prepare`. A program without it cannot write.
- `protect` gives the column to tables that have none, and to tables that got other columns since.
  The caller's transaction also holds the change of the tables. Foreign keys must be off, because a
  table is rewritten.
- `PRAGMA user_version` is the checksum of all definitions of tables and indexes.
- The checksum is a CRC-32 of the table's name and the values as Python literals in ASCII, which
  are the same in all releases of Python.
"""

from __future__ import annotations

import re
import sqlite3
from zlib import crc32

from headworks.errors import UsageError

COLUMN = "row_checksum"
_FUNCTION = "headworks_row_checksum"
_GENERATED_COLUMNS_SINCE = (3, 31, 0)
_CREATE_TABLE = re.compile(r"CREATE TABLE\s+(?:\"(?P<quoted>[^\"]+)\"|(?P<plain>\w+))\s*\(")
_DEFINITION = re.compile(rf"{COLUMN} INTEGER GENERATED ALWAYS AS \([^()]*\([^()]*\)\) STORED,\s*")


def row_checksum(*values: object) -> int:
    """Return the checksum of a row: the name of its table, and its values."""
    return crc32(ascii(values).encode())


def prepare(db: sqlite3.Connection) -> None:
    """Let a connection write. Deleted rows are overwritten, so that no salvage finds them."""
    if sqlite3.sqlite_version_info < _GENERATED_COLUMNS_SINCE:
        raise UsageError(
            f"SQLite {sqlite3.sqlite_version} has no generated columns, which hold checksums",
            fix="run a Python with SQLite 3.31 or newer, or keep the store in PostgreSQL",
        )
    db.create_function(_FUNCTION, -1, row_checksum, deterministic=True)
    db.execute("PRAGMA trusted_schema=ON")
    db.execute("PRAGMA secure_delete=ON").fetchall()


def protect(db: sqlite3.Connection) -> None:
    """Give every table its column, in the caller's transaction."""
    for name, sql in db.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    ).fetchall():
        definition = _definition(name, columns(db, name))
        if definition not in sql:
            _rewrite_table(db, name, _DEFINITION.sub("", sql), definition)
    wanted = definitions_checksum(db)
    if stored_definitions_checksum(db) != wanted:
        db.execute(f"PRAGMA user_version = {wanted}")


def columns(db: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of a table that its rows are made of."""
    found = db.execute(f'PRAGMA table_info("{table}")').fetchall()
    return [name for _, name, *_ in found if name != COLUMN]


def protected_tables(db: sqlite3.Connection) -> list[str]:
    """Return the tables that have the column."""
    found = db.execute(
        "SELECT t.name FROM sqlite_master AS t, pragma_table_xinfo(t.name) AS c"
        " WHERE t.type = 'table' AND c.name = ? ORDER BY t.name",
        (COLUMN,),
    )
    return [name for (name,) in found]


def definitions_checksum(db: sqlite3.Connection) -> int:
    """Return the checksum of the tables and indexes, as a signed number of 32 bits, not 0."""
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    unsigned = row_checksum(*sorted(map(ascii, rows))) or 1
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


def stored_definitions_checksum(db: sqlite3.Connection) -> int:
    """Return the checksum of the tables and indexes when they were last changed; 0: none yet."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def expression(table: str, names: list[str]) -> str:
    """Return the SQL of the checksum of a table's rows."""
    values = ", ".join([f"'{table}'", *(f'"{name}"' for name in names)])
    return f"{_FUNCTION}({values})"


def _definition(table: str, names: list[str]) -> str:
    wanted = expression(table, names)
    return f"{COLUMN} INTEGER GENERATED ALWAYS AS ({wanted}) STORED, "


def _rewrite_table(db: sqlite3.Connection, name: str, sql: str, definition: str) -> None:
    """Copy a table into one with the column, which SQLite cannot add to a table that exists."""
    head = _CREATE_TABLE.match(sql)
    if head is None:
        raise UsageError(f"the table {name} has a definition that cannot be extended: {sql}")
    indexes = db.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL",
        (name,),
    ).fetchall()
    names = ", ".join(f'"{column}"' for column in columns(db, name))
    new = f"{name}_with_checksums"
    db.execute(f'CREATE TABLE "{new}" ({definition}{sql[head.end() :]}')
    db.execute(f'INSERT INTO "{new}" ({names}) SELECT {names} FROM "{name}"')
    db.execute(f'DROP TABLE "{name}"')
    db.execute(f'ALTER TABLE "{new}" RENAME TO "{name}"')
    for (index,) in indexes:
        db.execute(index)
