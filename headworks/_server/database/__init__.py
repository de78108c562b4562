"""A database that a part keeps its state in: SQLite in a file, or PostgreSQL, by one URL.

- `dialects`: all that differs between SQLite and PostgreSQL;
- `migrations`: how a store comes to its present form;
- `database`: opens a store and hands out transactions.

Rules: knows no table but its own two (`bookkeeping`); what a part stores, and why, is the part's.
Needs SQLAlchemy, so nothing that a producer imports may import it.
"""

from headworks._server.database.database import Database, now_ms
from headworks._server.database.migrations import Bookkeeping, Step, bookkeeping

__all__ = ["Bookkeeping", "Database", "Step", "bookkeeping", "now_ms"]
