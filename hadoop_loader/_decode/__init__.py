"""Avro bytes to Arrow columns of the latest schema; messages that do not decode go to quarantine.

- `decoder`: the entry. `generated_decoder` runs generated Python. `compiled_decoder` runs the
  `bytecode` of a schema pair, whose instructions are `opcodes`, in `decode_vm`.
- `column_builders`, `column_buffers`: where decoded values collect, for each of the two.
- `topic_batch`: decoded messages by partition. `quarantine`: messages with the reason.
"""
