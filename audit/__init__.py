"""The audit trail: counts from every tier, brought together to prove that nothing was lost.

- `increments`: one audit message, read;
- `balance`: the arithmetic of loss and duplication (pure);
- `reconciler`: the audit topic, followed into the `store`;
- `queries`, `answers`, `statements`: what the store knows, asked;
- `ledger`, `reader`: the same sums the naive way, to hold the store against.

Rules: the producer tier is the reference; an increment counts once per id, however often it was
sent; the audit topic itself is not counted.
"""
