"""Reading Avro data of one schema as values of another: the base of every generated decoder.

- `resolution`: writer schema and reader schema to actions, decided once per pair.
- `generated_decoder`: actions as the source of a Python decoder; each back end adds its values.
- `primitives`: numbers and skipped values, bounded by the bytes that there are.

Rules: pure. A back end (the loader's columns, the consumer's objects) only carries actions out.
"""
