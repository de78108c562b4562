"""The audit: counts of every tier, reconciled to prove that no message was lost.

- `increments`: decodes one audit message.
- `states`, `balance`: from counts to the states of messages (pure); `proof`: duplicates by offsets.
- `reconciler`: follows the audit topic into the `store`; `service` adds findings and alerts.
- `queries`, `results`, `sql`, `sums`: questions to the store.
- `usage`: who uses which version of a subject (pure); `usage_reader` asks for what it needs.
- `ledger`, `reader`: the same sums computed naively, to check the store.

Rules: the producer tier is the reference. An increment counts once per id, however often it was
sent. The audit topic itself is not counted.
"""
