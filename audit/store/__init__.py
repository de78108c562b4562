"""The reconciler's store: the increments of the audit topic, deduplicated and summed.

- `tables`: the tables, and how long their rows stay.
- `database`: opens the store.
- `aggregate`: from increments to changes of the sums (pure).
- `apply`: writes a batch of the audit topic with the topic's offsets.
- `retention`: rolls up old rows, and later removes them.

`audit.queries` reads the store.
"""

from headworks._audit.store.database import AuditStore

__all__ = ["AuditStore"]
