"""The schema registry: Confluent's REST interface for Avro, over one transactional store.

- `model`: subjects, definitions, settings and the decisions about them; no I/O.
- `store`: tables, queries and transactions (SQLAlchemy Core; SQLite or PostgreSQL).
- `catalog`: what a request does: the model's decisions inside one transaction.
- `security`: who asks, and what they may do.
- `service`: HTTP; one router per resource. `fast_reads` answers reads by id in front of it.
- `metrics`: what is counted; `connection`: one HTTP connection, bounded.
- `server`: the process: binds, serves, stops.

Each may import those above it, and `catalog` nothing of HTTP.
"""
