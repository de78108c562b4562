"""The Kafka protocol and record format, and the clients that speak them.

- `records`: record batches (format v2), as pure functions over bytes.
- `protocol`: requests and replies, without I/O; `error_codes`: their codes by name.
- `client_properties`, `clients`: librdkafka clients, configured as every part needs them.
- `group_requests`: questions about groups, which librdkafka is not to give up by itself.
- `damaged_batch`: record batches with a wrong CRC, and the offset after one.
- `bootstrap`: the brokers that a client starts with. `partitioner`: keyless messages avoid
  partitions that no broker serves.

Rule: importing this package imports none of these modules. A user's process needs `clients` only.
"""
