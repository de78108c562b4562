"""A new store from the intact rows of a damaged one.

Rules:

- A row is intact if the checksum fits that is stored in it.
- The damaged files are moved to another name. The new store gets the old name as the last step.
- The part makes the new store with its own tables, and then mends what only it understands.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from headworks._server.checked_sqlite import row_checksums
from headworks._server.checked_sqlite.check import damage_of, may_lack_rows
from headworks._server.checked_sqlite.pages import FoundRecord, Value, records
from headworks.errors import UsageError

_REAL = ("REAL", "FLOAT", "DOUBLE")
_SHARED_FIRST_BYTE, _SHARED_BYTES = 0x4000_0002, 510  # of the file, where SQLite locks it
_SUFFIXES = ("", "-wal", "-shm", "-commits", "-checked")


@dataclass(slots=True)
class SalvagedRows:
    """The rows of a damaged store, and the places where nothing could be read."""

    rows: Counter[str] = field(default_factory=Counter)  # intact ones, by table
    damaged_at: list[int] = field(default_factory=list)  # bytes of cells that hold no intact row
    damage: list[str] = field(default_factory=list)  # as the check reported it
    damaged_tables: Collection[str] = ()  # tables that may have lost rows
    moved_to: Path = field(default_factory=Path)  # the damaged store


@dataclass(frozen=True, slots=True)
class IntactRow:
    """A row whose checksum fits, and the byte of its cell in the file."""

    table: str
    values: tuple[Value, ...]
    at: int


@dataclass(frozen=True, slots=True)
class _TableShape:
    """A table, and how its records are laid out."""

    name: str
    stored: tuple[int, ...]  # for each column, its place in a record
    checksum: int  # the place of the checksum
    rowid: int | None  # the column that is the rowid, which a record leaves out
    real: frozenset[int]  # the columns of floating point, where a record may have an integer


def salvage(
    path: Path,
    make: Callable[[Path], None],
    mend: Callable[[Path, SalvagedRows], None],
    *,
    fresh: Collection[str] = (),
) -> SalvagedRows:
    """Replace the store at `path` by a new one with its intact rows.

    `make` makes an empty store, `mend` mends it with the rows. Tables in `fresh` stay as made.
    If `mend` raises, nothing has changed. Raises UsageError if there is no store, or if another
    process has it open.
    """
    if not path.exists():
        raise UsageError(f"there is no store {path}", fix="restore it from a copy (docs/backup.md)")
    new, found = path.with_name(f"{path.name}.salvaged"), SalvagedRows()
    _remove(new)
    make(new)
    with closing(sqlite3.connect(new, isolation_level=None)) as db:
        row_checksums.prepare(db)
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA fullfsync=ON")  # macOS only: past the disk's cache
        db.execute("BEGIN IMMEDIATE")
        names = [name for name in row_checksums.protected_tables(db) if name not in fresh]
        for row in intact_rows(path, db, names, found.damaged_at):
            listed = ", ".join(f'"{name}"' for name in row_checksums.columns(db, row.table))
            marks = ", ".join("?" * len(row.values))
            insert = f'INSERT OR REPLACE INTO "{row.table}" ({listed}) VALUES ({marks})'
            db.execute(insert, row.values)
            found.rows[row.table] += 1
        db.execute("COMMIT")
    found.damage = damage_of(path)
    found.damaged_tables = [name for name in names if may_lack_rows(name, found.damage)]
    mend(new, found)
    _refuse_open(path)
    found.moved_to = _move_away(path)
    os.replace(new, path)
    _remove(new)
    return found


def intact_rows(
    path: Path, like: sqlite3.Connection, tables: Collection[str], unreadable: list[int]
) -> Iterator[IntactRow]:
    """Yield the intact rows of a file with tables like those of a store.

    The bytes of cells that cannot be read are added to `unreadable`.
    """
    shapes = [_shape(like, name) for name in tables]
    for record in records(path):
        if record.values is None:
            unreadable.append(record.at)
        for shape in shapes:
            row = _row(shape, record)
            if row is not None:
                yield IntactRow(shape.name, tuple(row), record.at)
                break


def _shape(db: sqlite3.Connection, table: str) -> _TableShape:
    columns = db.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
    names = [name for _, name, *_ in columns]
    by_key = [name for key, name in sorted((c[5], c[1]) for c in columns if c[5])]
    (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    rowid = None
    order = names
    if "WITHOUT ROWID" in sql:
        order = by_key + [name for name in names if name not in by_key]
    elif len(by_key) == 1:
        kind = next(c[2] for c in columns if c[1] == by_key[0])
        rowid = by_key[0] if kind.upper() == "INTEGER" else None
    values = [name for name in names if name != row_checksums.COLUMN]
    return _TableShape(
        table,
        tuple(order.index(name) for name in values),
        order.index(row_checksums.COLUMN),
        values.index(rowid) if rowid is not None else None,
        frozenset(values.index(c[1]) for c in columns if c[2].upper() in _REAL),
    )


def _row(shape: _TableShape, record: FoundRecord) -> list[Value] | None:
    """Return the values of a record if it is an intact row of this table."""
    if record.values is None or len(record.values) != len(shape.stored) + 1:
        return None
    row = [record.values[place] for place in shape.stored]
    for place in shape.real:
        value = row[place]
        row[place] = float(value) if isinstance(value, int) else value
    if shape.rowid is not None:
        row[shape.rowid] = record.rowid
    fits = row_checksums.row_checksum(shape.name, *row) == record.values[shape.checksum]
    return row if fits else None


def _refuse_open(path: Path) -> None:
    """Raise UsageError if another process has the store open.

    Each connection in WAL mode has a shared lock on these bytes, see "Lock-byte page" in SQLite's
    description of its file format. This needs no store that SQLite can open.
    """
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_BYTES, _SHARED_FIRST_BYTE)
        except BlockingIOError:
            raise UsageError(
                f"another program has the store {path} open", fix="stop it, and run this again"
            ) from None


def _move_away(path: Path) -> Path:
    """Move a store with the files beside it to names that are not taken."""
    number = 1
    while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in _SUFFIXES:
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(target.with_name(target.name + suffix))
    return target


def _remove(path: Path) -> None:
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
