"""The broker: append-only logs behind the Kafka protocol.

Layers, each of which uses only those before it. An acknowledged message becomes durable in
`topics.flusher`, which calls `sync` of `log.segment`.

- `log`: segments, indexes, partitions, recovery; files, no sockets.
- `groups`: consumer groups as a state machine; the clock is passed in.
- `coordination`: topics, configs, committed offsets, and other brokers: a local file or ZooKeeper.
- `topics`: the topics and partitions that this broker hosts; flushes and compaction.
- `transactions`: the transaction coordinator, and the markers that it writes.
- `handlers`: one module per group of APIs, from a request to its response.
- `server`: sockets, logins, start, and stop.
"""
