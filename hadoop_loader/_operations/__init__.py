"""The operations on a warehouse, each of them one transaction: load, rewind, rebuild, compact.

Beside them: `schedule` (repeated loads), `status`, `verify`, `completeness`, `audit_counts`, and
`metrics`.
"""
