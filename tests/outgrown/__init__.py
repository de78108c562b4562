"""The large shape: every part swapped for the engine of the industry, together, on one machine.

- `shape`: all servers, started in order; `servers`: what a test does to one of them.
- `kafka_nodes`, `hdfs_nodes`: three nodes of Apache Kafka; a name node and two data nodes.
- `python -m tests.outgrown` runs the demo on it.
"""
