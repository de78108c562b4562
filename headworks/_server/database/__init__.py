"""The store of a part's state: SQLite in a file, or PostgreSQL, by one URL.

- `dialects`: all differences between SQLite and PostgreSQL;
- `migrations`: the numbered steps that bring a store to its current form;
- `prepared`: statements that the driver runs;
- `libpq`: statements that the library below PostgreSQL's driver runs;
- `planner_statistics`: lets PostgreSQL count the rows of a store that grows;
- `database`: opens a store and provides transactions.

Rules: the only tables here are the two of `bookkeeping`; all others belong to a part. It needs
SQLAlchemy, so nothing that a producer imports may import it.
"""

from headworks._server.database.database import Database, now_ms
from headworks._server.database.dialects import sqlite_file
from headworks._server.database.migrations import Bookkeeping, Step, bookkeeping
from headworks._server.database.prepared import PreparedChanges, PreparedStatement

__all__ = [
    "Bookkeeping",
    "Database",
    "PreparedChanges",
    "PreparedStatement",
    "Step",
    "bookkeeping",
    "now_ms",
    "sqlite_file",
]
