"""Avro bytes to Arrow columns of the latest schema; messages that do not decode go to quarantine.

- `decoder`: the entry. `generated_decoder` runs generated Python. `column_program` compiles two
  schemas for the decoder in C. `conversions`: the values of columns, for both.
- `column_builders`, `column_buffers`: where decoded values collect, for each of the two.
- `recursive_types`: datums of recursive schemas in a form that a table can hold, with JSON text of
  `json_values`.
- `topic_batch`: decoded messages by partition. `quarantine`: messages with the reason.
"""
