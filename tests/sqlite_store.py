"""Change the content of a store behind its server's back, with the checksums of its rows kept."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headworks._server.checked_sqlite import row_checksums


def execute(path: Path, statement: str) -> None:
    """Execute one statement that changes rows."""
    with sqlite3.connect(path) as db:
        row_checksums.prepare(db)
        db.execute(statement)
    db.close()
