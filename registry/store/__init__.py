"""The store: tables, migrations, transactions and the queries over them.

- `tables` and `migrations`: what is kept, and how it came to its present form.
- `dialects`: all that differs between SQLite and PostgreSQL.
- `database`: opens a store and hands out transactions.
- `schemas`, `settings`, `changes`: the queries, one module per kind of row.
"""

from registry.store.database import Database

__all__ = ["Database"]
