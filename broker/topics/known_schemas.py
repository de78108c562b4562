"""The schemas that a registry has answered for, in a file: a broker goes on without the registry.

Rules:

- It holds facts that never change: a subject has an id, and an id has a text. It also holds which
  subjects were missing when the registry was last asked; that one is only used while it is away.
- It is a cache. A file that is damaged, or is of another registry, is begun again with a warning.
- Threads add to it, one at a time; the event loop only asks `has`, which reads memory.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from headworks._server.checked_sqlite import row_checksums
from headworks._server.checked_sqlite.check import check
from headworks.errors import CorruptError

_log = logging.getLogger(__name__)
SCHEMAS_FILE = "schemas.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS registry (url TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ids (
    subject TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (subject, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS schemas (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS missing (subject TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class KnownSchemas:
    """The answers of the registry at `url`, kept in the SQLite file `path`."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._ids: set[tuple[str, int]] = set()  # bounded by the content of the registry
        try:
            self._db = self._opened(url)
        except (sqlite3.DatabaseError, CorruptError, ValueError) as error:
            about = {"path": str(path)}
            _log.warning("%s cannot be used, and is begun again: %s", path, error, extra=about)
            for file in (path, path.with_name(f"{path.name}-journal")):
                file.unlink(missing_ok=True)
            self._db = self._opened(url)

    def has(self, subject: str, schema_id: int) -> bool:
        """Return whether the subject has the id."""
        return (subject, schema_id) in self._ids

    def text(self, schema_id: int) -> str | None:
        """Return the text of a schema, with its references inlined, or None."""
        with self._transaction() as db:
            for (text,) in db.execute("SELECT text FROM schemas WHERE id = ?", (schema_id,)):
                return str(text)
        return None

    def lacks(self, subject: str) -> bool:
        """Return whether the registry had no such subject when it was last asked."""
        with self._transaction() as db:
            return bool(
                db.execute("SELECT 1 FROM missing WHERE subject = ?", (subject,)).fetchall()
            )
        return False

    def add(self, subject: str, schema_id: int) -> None:
        """Remember that the subject has the id."""
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (subject, schema_id))
            db.execute("DELETE FROM missing WHERE subject = ?", (subject,))
        self._ids.add((subject, schema_id))

    def add_text(self, schema_id: int, text: str) -> None:
        """Remember the text of a schema."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO schemas VALUES (?, ?)", (schema_id, text))

    def add_missing(self, subject: str) -> None:
        """Remember that there is no such subject now."""
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO missing VALUES (?)", (subject,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _opened(self, url: str) -> sqlite3.Connection:
        check(self._path, "remove it")
        db = sqlite3.connect(self._path, check_same_thread=False)
        try:
            row_checksums.prepare(db)
            db.executescript(f"BEGIN IMMEDIATE; {_TABLES}")
            row_checksums.protect(db)
            db.commit()
            with db:
                db.execute("INSERT OR IGNORE INTO registry VALUES (?)", (url,))
            urls = [str(other) for (other,) in db.execute("SELECT url FROM registry")]
            if urls != [url]:
                raise ValueError(f"it is of the registries {urls}")
            self._ids = {(str(subject), int(number)) for subject, number in _ids(db)}
        except BaseException:
            db.close()
            raise
        return db

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction. A failure is logged: the registry answers, as without this file."""
        try:
            with self._lock, self._db:
                yield self._db
        except sqlite3.Error as error:
            _log.warning("%s: %s", self._path, error, extra={"path": str(self._path)})


def _ids(db: sqlite3.Connection) -> list[tuple[str, int]]:
    return db.execute("SELECT subject, id FROM ids").fetchall()
