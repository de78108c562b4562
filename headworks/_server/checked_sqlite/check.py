"""A store is checked as a whole before it is used: its log, its trees, and each row.

Rules:

- It reads one snapshot, and a store that others use may be checked.
- A store that is as sealed is good. Servers check every row nevertheless, unless the store is so
  large that it would keep them from their work for minutes.
- A store that no release with checksums has opened is checked by its trees alone.
- The end of a write-ahead log that was not flushed is no damage. It looks like damage to the last
  transaction, so that is reported, and the log is kept beside the store.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from enum import Enum
from pathlib import Path

from headworks._server.checked_sqlite import row_checksums
from headworks._server.checked_sqlite.sealed_pages import (
    is_as_sealed,
    is_large,
    page_sums,
    seal,
    seal_log,
)
from headworks._server.checked_sqlite.write_ahead_log import WriteAheadLog, log_path, read_log
from headworks.errors import CorruptError

_log = logging.getLogger(__name__)
_MAX_NAMED = 5
_OTHERS_WRITE_SECONDS = 0.1  # to end the frame that another process is writing
_TRIES = 3
_MAX_LINES = 100


class Checked(Enum):
    """How a store is checked, and whether it has a seal."""

    WHOLE = "each row"
    AND_SEALED = "each row, and the good store is sealed; a large one by its seal"
    BY_SEAL = "each page by the seal, and each row if a page is not as sealed"


def check(path: Path, fix: str, *, flushes: bool = True, checked: Checked = Checked.WHOLE) -> None:
    """Check the store at `path`, if there is one. Raises CorruptError with this fix.

    `flushes`: each transaction is on disk before the next one, so that damage before the last one
    is no power cut.
    """
    if not path.exists():
        return
    if checked is Checked.AND_SEALED and is_large(path.stat().st_size):
        checked = Checked.BY_SEAL
    damage = _damage(path, _check_log(path, fix, flushes=flushes), checked)
    if damage:
        more = f", and {len(damage) - _MAX_NAMED} more" if len(damage) > _MAX_NAMED else ""
        named = "; ".join(damage[:_MAX_NAMED])
        raise CorruptError(f"the store {path} is damaged: {named}{more}", fix=fix)


def is_empty(path: Path) -> bool:
    """Return whether a store has no byte, and no other process is making it now."""
    for _ in range(_TRIES):
        if not path.exists() or path.stat().st_size:
            return False
        time.sleep(_OTHERS_WRITE_SECONDS)
    return True


def damage_of(path: Path) -> list[str]:
    """Return the damaged places of a store, some of each kind; none if it cannot be opened."""
    return _damage(path, WriteAheadLog(), Checked.WHOLE)


def _damage(path: Path, log: WriteAheadLog, checked: Checked) -> list[str]:
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as db:
            row_checksums.prepare(db)
            db.text_factory = _text
            db.execute("BEGIN")
            sums = None if checked is Checked.WHOLE else page_sums(db, path, log.pages)
            if checked is Checked.BY_SEAL and sums and is_as_sealed(path, sums, log.pages):
                _seal_log(db, path, log)
                return []
            damage = list(_damaged_places(db))
            if sums and not damage:
                (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
                seal(path, sums, page_bytes)
            return damage
    except UnicodeDecodeError as error:
        # SQLite's message quotes damaged definitions, and Python cannot decode it.
        return [f"the definitions of its tables: {error.reason}"]
    except sqlite3.OperationalError as error:
        # Any other error is one of access, which the caller finds as well, and knows how to report.
        return [str(error)] if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR else []
    except sqlite3.DatabaseError as error:
        return [] if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB else [str(error)]


def _seal_log(db: sqlite3.Connection, path: Path, log: WriteAheadLog) -> None:
    """Add the pages of a log that was left to the seal.

    When this connection is closed, and no other program has one, SQLite copies them into the store.
    """
    if not log.pages:
        return
    db.execute("ROLLBACK")
    db.execute("PRAGMA busy_timeout=0").fetchall()
    with suppress(sqlite3.OperationalError):  # the program that writes now has one
        db.execute("BEGIN IMMEDIATE")
        seal_log(path, verify=log.damaged_at is not None)
        db.execute("ROLLBACK")


def may_lack_rows(table: str, damage: Collection[str]) -> bool:
    """Return whether a table may have lost rows, by the damage of its store."""
    of_tables = [line for line in damage if line.startswith("table ")]
    return len(of_tables) < len(damage) or any(
        line.startswith(f"table {table}: ") for line in of_tables
    )


def _damaged_places(db: sqlite3.Connection) -> Iterator[str]:
    known = row_checksums.stored_definitions_checksum(db)
    if known and known != row_checksums.definitions_checksum(db):
        yield "the definitions of its tables"
    tables = row_checksums.protected_tables(db)
    lines = list(_integrity(db, _MAX_LINES))
    if lines:
        by_table = [f"table {name}: {line}" for name in tables for line in _integrity(db, name)]
        yield from by_table or lines
    for table in tables:
        try:
            yield from _damaged_rows(db, table)
        except sqlite3.DatabaseError as error:
            yield f"table {table}: {error}"


def _integrity(db: sqlite3.Connection, of: str | int) -> Iterator[str]:
    """Yield the damage of the trees, of a table or the first lines of all."""
    try:
        for (line,) in db.execute(f"PRAGMA integrity_check({of})").fetchall():
            if line != "ok":
                yield from line.removeprefix("*** in database main ***\n").splitlines()
    except sqlite3.DatabaseError as error:
        yield str(error)


def _damaged_rows(db: sqlite3.Connection, table: str) -> Iterator[str]:
    names = row_checksums.columns(db, table)
    wanted = row_checksums.expression(table, names)
    differ = f'FROM "{table}" WHERE {row_checksums.COLUMN} IS NOT {wanted}'
    try:
        if not db.execute(f"SELECT 1 {differ} LIMIT 1").fetchall():
            return
    except sqlite3.OperationalError:
        pass  # text that is not UTF-8 cannot be passed to a function: look at each row
    listed = ", ".join(f'"{name}"' for name in (row_checksums.COLUMN, *names))
    for stored, *row in db.execute(f'SELECT {listed} FROM "{table}"'):
        if row_checksums.row_checksum(table, *row) != stored:
            yield f"table {table}: row {_shortened(row)}"


def _shortened(row: list[object]) -> str:
    text = ascii(tuple(row))
    return text if len(text) < 100 else f"{text[:97]}..."


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _check_log(path: Path, fix: str, *, flushes: bool) -> WriteAheadLog:
    found = read_log(path)
    for _ in range(_TRIES - 1):
        if found.damaged_at is None:
            return found
        time.sleep(_OTHERS_WRITE_SECONDS)
        again = read_log(path)
        if (again.damaged_at, again.page_count) != (found.damaged_at, found.page_count):
            return again  # another process writes it
        found = again
    if found.damaged_at is None or not found.lost_commits:
        return found
    where = f"{log_path(path)} is damaged at byte {found.damaged_at}"
    if flushes and found.lost_commits > 1:
        raise CorruptError(f"{where}, and {_transactions(found)} lie there or behind it", fix=fix)
    kept = log_path(path).with_name(f"{path.name}-wal.damaged-{time.time_ns()}")
    shutil.copy(log_path(path), kept)
    _log.warning(
        "%s, or was not flushed before a power cut: the store ends before it, without %s. The log"
        " is kept in %s",
        where,
        _transactions(found),
        kept,
        extra={"path": str(path)},
    )
    return found


def _transactions(found: WriteAheadLog) -> str:
    return "1 transaction" if found.lost_commits == 1 else f"{found.lost_commits} transactions"
