"""Reading Avro data of one schema as values of another: what every compiled decoder is made from.

- `resolution`: writer schema and reader schema to a program, decided once per pair;
- `generated_decoder`: actions as the source of a Python decoder; the back ends add its values;
- `primitives`: numbers and skipped values, bounded by the bytes that are there.

Rules: pure; a back end (the loader's columns, the consumer's objects) only carries a program out.
"""
