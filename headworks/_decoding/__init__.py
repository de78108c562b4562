"""Reading Avro data of one schema as values of another: what every compiled decoder is made from.

- `resolution`: writer schema and reader schema to a program, decided once per pair;
- `text`: the lines that every compiled decoder is written with;
- `reading`: numbers and skipped values, bounded by the bytes that are there.

Rules: pure; a back end (the loader's columns, the consumer's objects) only carries a program out.
"""
