"""The cost of the same rows as Parquet, ORC, and Avro files: why tables are Parquet.

Rules: the rows are those of a file that the loader has written, in Arrow before the clock starts,
as when it writes them. Arrow does not write Avro, so Avro receives the rows as fastavro's Python
objects. The clock is the CPU time of this process, and all output goes to memory.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from fastavro import parse_schema, schemaless_reader, writer
from pyarrow import orc

from bench.frame import Bench
from bench.loader.data import Events
from hadoop_loader._storage.parquet_encodings import FileSettings
from hadoop_loader._storage.staging import write_parquet

_TURNS = 3


def compare(bench: Bench, events: Events, folder: Path) -> None:
    """Rewrite the rows of the largest file below `folder`, whose events were `events`."""
    largest = max(folder.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    rows = pq.read_table(largest)
    schema = parse_schema(json.loads(events.named("any")))
    objects: list[Any] = [schemaless_reader(io.BytesIO(v), schema, schema) for v in events.values]
    ways: dict[str, tuple[int, Callable[[io.BytesIO], object]]] = {
        "Parquet, as the loader writes it": (
            rows.num_rows,
            lambda out: write_parquet(rows, out, FileSettings(rows)),
        ),
        "ORC (pyarrow)": (
            rows.num_rows,
            lambda out: orc.write_table(rows, out, compression="ZSTD"),
        ),
        "Avro (fastavro)": (len(objects), lambda out: writer(out, schema, objects, "deflate")),
    }
    for who, (count, write) in ways.items():
        seconds, size = _cost(write)
        bench.record("writing page views: CPU", who, 1e6 * seconds / count, "us/row")
        bench.record("writing page views: size", who, size / count, "bytes/row")


def _cost(write: Callable[[io.BytesIO], object]) -> tuple[float, int]:
    """CPU seconds and bytes of the cheapest of some turns."""
    found = []
    for _ in range(_TURNS):
        out = io.BytesIO()
        began = time.process_time()
        write(out)
        found.append((time.process_time() - began, len(out.getvalue())))
    return min(found)
