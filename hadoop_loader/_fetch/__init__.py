"""Reading the log: topics, offset ranges, and messages as columns. No files, no Spark.

- `ranges`: what a load reads, and which task reads what. `position`: where a rewind goes.
- `kafka_log`: reading through librdkafka. `broker_fetcher`: reading through plain sockets, with
  `requests` (bytes, no I/O), `batches`, and `record_spans`.
- `messages`: the keys and values of a range in one buffer.
"""
