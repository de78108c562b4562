"""HTTP: the interface of Confluent Schema Registry 8 for Avro, and what is ours beside it.

One router per resource; `middleware` does what is the same for every request (paths, query names,
content types, sizes), `parameters` and `bodies` read requests, `app` puts it together.
"""
