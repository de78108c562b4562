"""The broker: an append-only log behind the Kafka protocol, on one machine.

Layers, each knowing only those before it:

- `records`: the record batch format v2; pure functions over bytes.
- `log`: segments, indexes, partitions, recovery; files, no sockets.
- `protocol`: frames and messages of the Kafka protocol; bytes in, requests out, no I/O.
- `groups`: consumer groups as a state machine; the clock is passed in.
- `coordination`: where topics, configs and committed offsets live; local file now.
- `handlers`: one module per API; what the broker answers.
- `server`: sockets, the flusher thread, start and stop.

Beside them, knowing none of them: `mirror`, which copies topics between clusters.
"""
