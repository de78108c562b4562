"""The audit trail: counts from every tier, brought together to prove that nothing was lost.

- `ledger`: the pure sums: increments, deduplicated by id, to completeness per topic and window;
- `reader`: the audit topic, from its beginning to its end.

Rules: the producer tier is the reference; an increment counts once per id, however often it was
sent; the audit topic itself is not counted.
"""
