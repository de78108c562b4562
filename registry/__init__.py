"""The schema registry: Confluent's REST interface for Avro, over one transactional store.

- `model`: subjects, definitions, settings, and the decisions about them; no I/O.
- `store`: tables, queries, and transactions (SQLAlchemy Core; SQLite or PostgreSQL).
- `operations`: one transaction for each request, with the decisions of the model.
- `security`: the role that each route requires.
- `service`: HTTP, one router per resource. `fast_reads` serves reads by id in front of it.
- `worker_pools`: threads and queues by kind of work, so that slow requests delay no others.
- `metrics`: the Prometheus metrics.
- `server`: the process: binds, serves, and stops.

Rule: each may import those above it. `operations` knows nothing of HTTP.
"""
