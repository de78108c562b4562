"""The store: tables, migrations, transactions and the queries over them.

- `tables`: what is kept.
- `database`: opens a store, and the steps by which it came to its present form
  (`headworks._server.database` has what is not the registry's own).
- `schemas`, `settings`, `changes`: the queries, one module per kind of row.
"""

from headworks._registry.store.database import RegistryStore

__all__ = ["RegistryStore"]
