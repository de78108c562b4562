"""The store: tables, migrations, transactions, and queries.

- `tables`: the tables.
- `database`: opens a store and migrates it (`headworks._server.database` does the general part).
- `schemas`, `schema_writes`, `settings`, `changes`, `totals`: the queries.
"""

from headworks._registry.store.database import RegistryStore

__all__ = ["RegistryStore"]
