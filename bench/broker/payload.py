"""Checking payloads (`headworks.schema.validation=payload`): what a topic that wants it pays.

Rule: the judge alone is measured, on batches in memory. The peer decodes each value with fastavro,
which is the least that another broker in Python could do.
"""

from __future__ import annotations

import io
import json
import time

from fastavro import parse_schema, schemaless_reader

from bench.frame import Bench
from bench.loader.data import Events, page_views
from headworks._broker.handlers.framed_records import framed_records
from headworks._decoding.datum_check import DatumCheck
from headworks._kafka.records import Batch, Record, encode_batch, iter_batches
from headworks._kafka.records.record import record_data
from headworks._wire import HEADER_SIZE, prefix
from headworks.schema import parse

_WHAT = "payloads checked, one core, page views"
_ID = 7
_RECORDS = 2_000  # of a batch


def run(bench: Bench) -> None:
    """Measure both on the same batch."""
    views = page_views()
    values = [prefix(_ID) + value for value in views.values[:_RECORDS]]
    raw = encode_batch([Record(0, 1, b"key", value, ()) for value in values])
    (batch,) = iter_batches(raw)
    data = record_data(raw, batch)
    for _ in bench.rounds(full=5):
        bench.record(_WHAT, "headworks", _our_rate(views, data, batch), "messages/s")
        bench.record(_WHAT, "fastavro", _rate_of_fastavro(views, values), "messages/s")
    got = bench.median(_WHAT, "headworks")
    bench.bar(_WHAT, at_least=400_000, got=got, unit="messages/s")


def _our_rate(views: Events, data: bytes, batch: Batch) -> float:
    check = DatumCheck(parse(json.dumps(views.schema)))
    began = time.perf_counter()
    for _ in range(100):
        found = framed_records(data, batch).values
        assert found.distinct_ids() == [_ID]
        assert not check.find_bad(found.data, found.ids, found.spans, _ID, 1)
    return 100 * _RECORDS / (time.perf_counter() - began)


def _rate_of_fastavro(views: Events, values: list[bytes]) -> float:
    schema = parse_schema(views.schema)
    began = time.perf_counter()
    for value in values:
        file = io.BytesIO(value[HEADER_SIZE:])
        schemaless_reader(file, schema, None)
        assert not file.read(1)
    return _RECORDS / (time.perf_counter() - began)
