"""Reading the log: topics, offset ranges, and messages as columns. No files, no Spark.

- `ranges`: the offsets that a load reads, and the task that reads each of them. `position`: the
  offsets that a rewind goes back to.
- `kafka_log`: reading through librdkafka. `broker_fetcher`: reading through plain sockets, with
  `requests` (bytes, no I/O), `batches`, and `record_spans`.
- `damage`: what becomes of a damaged record batch.
- `messages`: the keys and values of a range in one buffer. `row_numbers`: their columns of numbers.
"""
