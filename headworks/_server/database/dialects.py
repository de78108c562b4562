"""All differences between SQLite and PostgreSQL.

Rule: SQL that only one of the two understands is allowed here and nowhere else. `prepared` joins
statements that both understand for a database that takes several at once.

| | SQLite | PostgreSQL |
| --- | --- | --- |
| several statements | one after the other | in one round trip |
| a read | deferred transaction (a snapshot, WAL) | REPEATABLE READ (a snapshot) |
| a write | BEGIN IMMEDIATE: waits for the writer before it | READ COMMITTED, after the state row |
| durability | synchronous=FULL | the server's |
| changed bytes | a checksum in each row, checked at the start | the server's page checksums |
| lost commits | a counter beside the file | the server's |
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import (
    ArgumentError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from headworks._server.checked_sqlite import row_checksums
from headworks._server.checked_sqlite.check import Checked, check, is_empty
from headworks._server.checked_sqlite.commit_counter import CommitCounter, refuse_missing
from headworks._server.checked_sqlite.sealed_pages import seal_log
from headworks._server.checked_sqlite.write_ahead_log import log_path
from headworks._server.database.idle_connections import ping_idle_connections
from headworks._server.database.prepared import ASKS, run_text
from headworks.errors import CorruptError, UsageError

_log = logging.getLogger(__name__)
_WRITES = "headworks_writes"
_MIGRATES = "headworks_migrates"
_CREATION_SECONDS = 3.0
_BUSY_SECONDS = 20.0
_CONNECT_SECONDS = 10
_RESTORE = "stop every program that uses it, and restore it from a copy (docs/backup.md)"
_RETURNING_SINCE = (3, 35, 0)
_MIGRATION_LOCK = 0x4865_6164


def connect(
    store: str, salvage: str, *, whole_check: bool = True, prepares: bool = False
) -> Engine:
    """Return an engine for the store at a URL: `sqlite:///FILE` or `postgresql://..`.

    Raises UsageError for any other URL, a missing driver, or a missing folder, and CorruptError for
    a damaged file, with the command `salvage` as one way out. Without `whole_check`, the rows of a
    file are checked only if its pages are not as its last program left them. With `prepares`,
    psycopg prepares no statements of PostgreSQL: it would discard ours at every rollback.
    """
    try:
        url = make_url(store)
    except ArgumentError:
        raise _unknown(store) from None
    if url.get_backend_name() == "sqlite":
        return _connect_sqlite(url, salvage, Checked.AND_SEALED if whole_check else Checked.BY_SEAL)
    if url.get_backend_name() != "postgresql":
        raise _unknown(store)
    try:
        engine = create_engine(
            url,
            pool_size=10,
            max_overflow=30,
            connect_args={"connect_timeout": _CONNECT_SECONDS},
        )
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise UsageError(
            f"no driver for the store {url.render_as_string()}: {error}",
            fix="pip install 'psycopg[binary]'",
        ) from None
    ping_idle_connections(engine)
    if prepares and engine.dialect.driver == "psycopg":
        event.listen(engine, "connect", _prepare_nothing)
    return engine


def _prepare_nothing(connection: Any, _record: object) -> None:
    connection.prepare_threshold = None


def asking(engine: Engine) -> Engine:
    """Return the engine for single statements outside of a transaction."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="AUTOCOMMIT", **{ASKS: True})
    return engine.execution_options(**{ASKS: True})


def reading(engine: Engine) -> Engine:
    """Return the engine for transactions that only read, from a snapshot."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ")
    return engine


def writing(engine: Engine) -> Engine:
    """Return the engine for transactions that write."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="READ COMMITTED")
    return engine.execution_options(**{_WRITES: True})


def migrating(engine: Engine) -> Engine:
    """Return the engine for the migrations: SQLite's tables may be rewritten."""
    return writing(engine).execution_options(**{_MIGRATES: True})


def useful_readers(engine: Engine) -> int:
    """Return how many threads gain by reading at a time.

    SQLite runs in this process, and reads in turns with Python. A PostgreSQL driver waits for its
    server, but most of the time goes to Python too. More threads only cost switches.
    """
    return 2 if engine.dialect.name == "sqlite" else 3


def can_return(connection: Connection) -> bool:
    """Return whether an UPDATE can return the changed row."""
    if connection.dialect.name == "sqlite":
        return sqlite3.sqlite_version_info >= _RETURNING_SINCE
    return True


def is_unreachable(error: SQLAlchemyError) -> bool:
    """Return whether no database answered at all."""
    if not isinstance(error, OperationalError) or isinstance(error.orig, sqlite3.Error):
        return False
    # A server that refuses sends a code, or FATAL during the connection.
    return getattr(error.orig, "sqlstate", None) is None and "FATAL" not in str(error.orig)


def lock_for_migration(connection: Connection) -> None:
    """Lock out other processes that migrate, before the state row exists."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})


def protect_rows(connection: Connection) -> None:
    """Let SQLite keep a checksum of each row, as the last step of a migration."""
    if connection.dialect.name == "sqlite":
        row_checksums.protect(_driver_connection(connection))


def sqlite_file(store: str) -> Path:
    """Return the file of a store in SQLite. Raises UsageError for another store."""
    url = make_url(store)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise UsageError(
            f"{url.render_as_string()} is not a file of SQLite",
            fix="restore a PostgreSQL database with pg_restore (docs/backup.md)",
        )
    return Path(url.database)


def open_counter(engine: Engine) -> CommitCounter | None:
    """Open the counter of a file's commits. PostgreSQL needs none."""
    if engine.dialect.name != "sqlite":
        return None
    return CommitCounter(Path(engine.url.database or ""))


def begin_counting(
    counter: CommitCounter, url: URL, read_commits: Callable[[], int], salvage: str
) -> None:
    """Compare the commits of a file with its counter. Raises CorruptError if it lacks any."""
    counter.begin(Path(url.database or ""), read_commits, _fix(salvage, url))


def log_bytes(engine: Engine) -> int:
    """Return the size of the write-ahead log of a file; 0 for PostgreSQL."""
    if engine.dialect.name != "sqlite":
        return 0
    try:
        return log_path(Path(engine.url.database or "")).stat().st_size
    except FileNotFoundError:
        return 0


def checkpoint(engine: Engine) -> None:
    """Seal the pages of the write-ahead log, and copy them into the file.

    No other process may write in between, because its pages would not be sealed. A failure is
    logged, and nothing is lost: the log has the pages.
    """
    path = Path(engine.url.database or "")
    try:
        with (
            closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as writer,
            closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as copier,
        ):
            writer.execute("BEGIN IMMEDIATE")
            seal_log(path)
            copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            writer.execute("ROLLBACK")
    except (sqlite3.Error, OSError) as error:
        _log.warning("%s: no checkpoint now: %s", path, error, extra={"path": str(path)})


def or_salvage(engine: Engine, salvage: str) -> str:
    """Return the words for the other way out of a damaged file; empty for PostgreSQL."""
    if engine.dialect.name != "sqlite":
        return ""
    return f", or keep what is intact with `{_command(salvage, engine.url)}`"


def _fix(salvage: str, url: URL) -> str:
    return f"{_RESTORE}, or keep what is intact with `{_command(salvage, url)}`"


def _command(salvage: str, url: URL) -> str:
    return f"{salvage} --store {url.render_as_string()}"


def _driver_connection(connection: Connection) -> sqlite3.Connection:
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def _connect_sqlite(url: URL, salvage: str, checked: Checked) -> Engine:
    if not url.database or url.database == ":memory:":
        raise UsageError(
            "a store in memory would be lost, and is not shared between threads",
            fix="name a file: --store sqlite:////absolute/path/FILE",
        )
    folder = Path(url.database).parent
    if not folder.is_dir():
        raise UsageError(
            f"the folder of the store does not exist: {folder}", fix=f"mkdir -p {folder}"
        )
    path = Path(url.database)
    deadline = time.monotonic() + _CREATION_SECONDS
    while (empty := is_empty(path)) and time.monotonic() < deadline:
        time.sleep(
            0.02
        )  # a new store is an empty file for a moment, while another program makes it
    if empty:
        raise CorruptError(
            f"the store {path} is an empty file: what it held is lost",
            fix=f"{_RESTORE}. If it never held anything, remove it",
        )
    refuse_missing(path, _RESTORE)
    check(path, _fix(salvage, url), checked=checked)
    engine = create_engine(
        url,
        pool_size=10,
        max_overflow=30,
        connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Python's own transaction control would begin too late. `_begin_sqlite` begins instead.
    connection.isolation_level = None
    row_checksums.prepare(connection)
    cursor = connection.cursor()
    _write_ahead(cursor)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA fullfsync=ON")  # macOS only: past the disk's cache
    cursor.execute("PRAGMA wal_autocheckpoint=0")  # `checkpoint` seals the pages before it
    cursor.execute("PRAGMA journal_size_limit=0").fetchall()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    """Enable the write-ahead log; retries, because SQLite itself does not wait for this lock."""
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if ASKS in options:
        return
    writes = options.get(_WRITES, False)
    if options.get(_MIGRATES, False):
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    run_text(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")


def _unknown(store: str) -> UsageError:
    return UsageError(
        f"{store!r} is not the address of a store",
        fix="use sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE",
    )
