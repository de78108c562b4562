"""The reconciler's own store: what the audit topic said, deduplicated and summed.

- `tables`: what is kept, and for how long;
- `database`: opens the store;
- `aggregate`: increments to the sums that they change (pure);
- `writing`: a batch of the audit topic into the store, with the topic's offsets;
- `upkeep`: what is old is rolled up, and later forgotten.

`audit.queries` is how it is read.
"""

from headworks._audit.store.database import AuditStore

__all__ = ["AuditStore"]
