"""One task on one core, without Spark: `python -m bench.loader.phases JSON` prints what it took.

Rules: the same function runs as in a Spark task; what a process does once (imports, decoders) is
done before the clock starts, and told apart as `start`.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._fetch.kafka_log import Fetcher, KafkaFetcher
from hadoop_loader._fetch.ranges import FetchRange
from hadoop_loader._tasks.load_task import (
    LoadTask,
    TaskManifest,
    TopicPlan,
    WriterSchema,
    run_load_task,
)
from headworks._kafka.client_properties import client_properties
from headworks._wire import HEADER_SIZE

Measure = dict[str, Any]


def main(text: str) -> None:
    """Do what `text` says, and print the result."""
    given = json.loads(text)
    ranges = [FetchRange(given["topic"], p, 0, end) for p, end in enumerate(given["ends"])]
    folder = Path(given["folder"])
    ways: dict[str, Callable[[], Measure]] = {
        "compiled": lambda: _ours(given, ranges, folder, compiled=True),
        "generated": lambda: _ours(given, ranges, folder, compiled=False),
        "fastavro": lambda: _by_hand(given, ranges, folder, _fastavro),
        "pyruhvro": lambda: _by_hand(given, ranges, folder, _pyruhvro),
    }
    sys.path += given.get("path", ())
    sys.stdout.write(json.dumps(ways[given["way"]]()))


def _ours(given: Measure, ranges: Sequence[FetchRange], folder: Path, *, compiled: bool) -> Measure:
    writer = WriterSchema(given["schema_id"], 1, given["schema"])
    plan = TopicPlan(given["topic"], "t", given["topic"], writer, (writer,))
    client = client_properties(given["bootstrap"])

    def run(name: str, part: Sequence[FetchRange]) -> TaskManifest:
        staging = folder / name
        staging.mkdir(parents=True)
        task = LoadTask(1, tuple(part), {given["topic"]: plan}, staging)
        with BrokerFetcher(client, compiled=compiled) as fetcher:
            return run_load_task(task, fetcher, compiled=compiled)

    began = time.perf_counter()
    run("warm", [FetchRange(r.topic, r.partition, 0, min(r.end, 100)) for r in ranges])
    start = time.perf_counter() - began
    wall, cpu = time.perf_counter(), time.process_time()
    manifest = run("load", ranges)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rows = sum(topic.rows for topic in manifest.topics)
    size = sum(file.bytes for file in manifest.files)
    return _result(rows, size, wall, cpu, {**manifest.seconds, "start": start})


def _fastavro(text: str) -> Callable[[list[bytes]], Any]:
    """Return what makes a table of data with fastavro."""
    import pyarrow as pa
    from fastavro import parse_schema, schemaless_reader

    schema = parse_schema(json.loads(text))

    def decode(values: list[bytes]) -> Any:
        events: list[Any] = [schemaless_reader(io.BytesIO(v), schema, schema) for v in values]
        return pa.Table.from_pylist(events)

    return decode


def _pyruhvro(text: str) -> Callable[[list[bytes]], Any]:
    """Return what makes a table of data with pyruhvro, in one thread."""
    import pyarrow as pa

    pyruhvro = importlib.import_module("pyruhvro")
    return lambda values: pa.Table.from_batches([pyruhvro.deserialize_array(values, text)])


def _by_hand(
    given: Measure,
    ranges: Sequence[FetchRange],
    folder: Path,
    decoder: Callable[[str], Callable[[list[bytes]], Any]],
) -> Measure:
    """Load the way one would write oneself: a consumer, a library for Avro, Arrow, Parquet."""
    import pyarrow.parquet as pq

    decode = decoder(given["schema"])
    fetcher: Fetcher = KafkaFetcher(client_properties(given["bootstrap"]))
    folder.mkdir(parents=True, exist_ok=True)
    seconds = dict.fromkeys(("fetch", "decode", "write"), 0.0)
    rows = size = 0
    wall, cpu = time.perf_counter(), time.process_time()
    last = wall
    for n, values in enumerate(_batches(fetcher, ranges)):
        seconds["fetch"] += (now := time.perf_counter()) - last
        table = decode(values)
        seconds["decode"] += (last := time.perf_counter()) - now
        path = folder / f"{n}.parquet"
        pq.write_table(table, path, compression="zstd")
        rows += len(values)
        size += path.stat().st_size
        seconds["write"] += (now := time.perf_counter()) - last
        last = now
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return _result(rows, size, wall, cpu, seconds)


def _batches(fetcher: Fetcher, ranges: Sequence[FetchRange]) -> Iterator[list[bytes]]:
    values: list[bytes] = []
    for _, messages in fetcher.fetch(ranges):
        values += [m.value[HEADER_SIZE:] for m in messages if m.value is not None]
        if len(values) >= 200_000:
            yield values
            values = []
    if values:
        yield values


def _result(rows: int, size: int, wall: float, cpu: float, seconds: dict[str, float]) -> Measure:
    return {"rows": rows, "bytes": size, "wall": wall, "cpu": cpu, "seconds": seconds}


if __name__ == "__main__":
    main(sys.argv[1])
