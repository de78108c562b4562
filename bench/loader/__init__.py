"""The loader: from broker to committed Parquet, beside fastavro and Spark's own Kafka source.

One core is measured in a process of its own that does what a Spark task does; whole loads run as
users run them, with broker, registry, Spark and metastore.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.frame import Bench
from bench.loader import topics
from bench.loader.data import Events, flights, page_views, send
from bench.loader.formats import compare
from bench.loader.installation import (
    VIEWS,
    Stack,
    open_warehouse,
    rows_of_views,
    start_stack,
    timed_load,
)
from bench.loader.spark_fetch import SPARK_VERSION, Peer, fetch_peer
from headworks.errors import HeadworksError
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of

TITLE = "The Hadoop loader: broker to committed Parquet, beside fastavro and Spark's Kafka source"
WAYS = {
    "compiled": "headworks, compiled decoder",
    "generated": "headworks, generated Python",
    "fastavro": "confluent-kafka + fastavro + pyarrow",
    "pyruhvro": "confluent-kafka + pyruhvro + pyarrow",
}
_FETCHED = "pyruhvro"  # into the scratch folder: never a dependency
US = WAYS["compiled"]
SPARK = f"Spark {SPARK_VERSION}: its Kafka source + from_avro"
ONE_CORE = "broker to Parquet files, one core"
PER_CORE = "the same by CPU time of the task"
_WORKER = "a worker: from its fork to its first row"
SEED_MESSAGES = 172_000 * 600  # ten minutes of LinkedIn's peak, which its cluster loads in two
SEED_SECONDS = 120


def run(bench: Bench) -> None:
    """Measure everything."""
    rows = 100_000 if bench.quick else 1_000_000
    # A task has 0.2 s of fixed costs. With 300,000 rows, a row took a fifth more CPU time.
    of_a_task = 1_000_000
    events = page_views()
    peer = _peer(bench)
    ways = [way for way in WAYS if way != _FETCHED or _fetch_pyruhvro(bench)]
    for number in bench.rounds(full=3):
        _worker(bench, events)
        folder = bench.folder / str(number)
        with start_stack(folder / "one") as stack:
            bench.say(f"sending {of_a_task:,} page views of {events.mean:.0f} bytes")
            send(stack.broker, stack.registry, VIEWS, events, of_a_task)
            for way in ways:
                _one_core(bench, stack, events, VIEWS, way, folder / way, "page views")
            compare(bench, events, folder / "compiled")
            if peer is not None:
                _spark(bench, stack, events, peer, folder / "spark")
        _flights(bench, folder, ways)
        _rows(bench, events, rows, folder / "rows")
        topics.measure(bench, US, rows, (1, 10, 40) if bench.quick else (1, 50, 400), folder)
    _bars(bench, 40 if bench.quick else 400)


def _bars(bench: Bench, many: int) -> None:
    what = f"{PER_CORE}, page views"
    bench.bar(
        "broker to Parquet files, rows for each second of one core",
        at_least=300_000,
        got=bench.median(what, US),
        unit="rows/CPU s",
    )
    bench.bar(
        "beside fastavro",
        at_least=20,
        got=bench.ratio(what, US, WAYS["fastavro"]),
        unit="x fastavro",
    )
    bench.bar(
        f"{many} topics with something new in each, beside the same rows in one topic",
        at_most=2.5,
        got=bench.ratio(topics.new_in(many), US, US, other_what=topics.new_in(1)),
        unit="x the time",
    )
    bench.bar(
        topics.nothing_in(many),
        at_most=5,
        got=bench.median(topics.nothing_in(many), US),
        unit="s",
    )
    bench.bar("a worker is ready", at_most=50, got=bench.median(_WORKER, US), unit="ms")
    over_a_week = bench.ratio(topics.week_in(many), US, US, other_what=topics.week_in(1))
    if over_a_week:
        bench.note(
            f"The rows are of ten minutes, as a load every ten minutes finds them. Rows of a whole "
            f"week, {7 * many:,} files in {many} topics, take {over_a_week:.1f} x as long as "
            "in one topic."
        )
    rate = bench.median("whole load on one core, 10x the rows", US)
    if rate:
        bench.note(
            f"Ten minutes of 172,000 messages/s are {SEED_MESSAGES / 1e6:.0f} million: one core "
            f"loads them in {SEED_MESSAGES / rate:.0f} s. {SEED_MESSAGES / rate / 120:.1f} cores "
            f"load them in the {SEED_SECONDS} s that LinkedIn's paper reports for its cluster."
        )


def _one_core(
    bench: Bench, stack: Stack, events: Events, topic: str, way: str, folder: Path, data: str
) -> None:
    given: dict[str, Any] = {
        "way": way,
        "topic": topic,
        "ends": stack.ends(topic),
        "folder": str(folder),
        "bootstrap": stack.broker,
        "path": [str(bench.folder / _FETCHED)],
        "schema": events.named(topic),
        "schema_id": RegistryClient(f"http://{stack.registry}").version(subject_of(topic), 1).id,
    }
    found = _child([sys.executable, "-m", "bench.loader.phases"], given)
    rows, who = found["rows"], WAYS[way]
    assert rows == sum(given["ends"])
    bench.record(
        f"{ONE_CORE}, {data}",
        who,
        rows / found["wall"],
        "rows/s",
    )
    bench.record(f"{PER_CORE}, {data}", who, rows / found["cpu"], "rows/CPU s")
    for phase, seconds in found["seconds"].items():
        if phase == "start":
            bench.record("once a process that imports the loader itself", who, seconds, "s")
        else:
            bench.record(f"{data}: {phase}", who, 1e6 * seconds / rows, "us/row")
    bench.record(f"{data}: size of the files", who, found["bytes"] / rows, "bytes/row")


def _worker(bench: Bench, events: Events) -> None:
    """A new worker, of a process that has imported the loader."""
    given = {"schema": events.named(VIEWS), "value": events.values[0].hex()}
    found = _child([sys.executable, "-m", "bench.loader.worker"], given)
    bench.record("once a session: imports before the first worker, CPU", US, found["prepared"], "s")
    for seconds in found["workers"]:
        bench.record(_WORKER, US, 1e3 * seconds, "ms")


def _fetch_pyruhvro(bench: Bench) -> bool:
    """Install pyruhvro into the scratch folder; False, and why, if it cannot be had."""
    where = ["--quiet", "--no-deps", "--target", str(bench.folder / _FETCHED)]
    command = [sys.executable, "-m", "pip", "install", *where, _FETCHED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        bench.missing(WAYS[_FETCHED], (done.stderr.strip().splitlines() or ["pip failed"])[-1])
    return not done.returncode


def _peer(bench: Bench) -> Peer | None:
    try:
        return fetch_peer()
    except HeadworksError as error:
        bench.missing(SPARK, error.message)
        return None


def _spark(bench: Bench, stack: Stack, events: Events, peer: Peer, folder: Path) -> None:
    given = {
        "jars": list(map(str, peer.jars)),
        "topic": VIEWS,
        "ends": stack.ends(VIEWS),
        "folder": str(folder),
        "bootstrap": stack.broker,
        "schema": events.named(VIEWS),
        "event_time": "header.time",
    }
    script = Path(__file__).with_name("spark_peer.py")
    found = _child([str(peer.python), str(script)], given)
    bench.record(f"{ONE_CORE}, page views", SPARK, found["rows"] / found["wall"], "rows/s")


def _flights(bench: Bench, folder: Path, ways: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        events = flights(folder)
    except HeadworksError as error:
        bench.missing("the flights", error.message)
        return
    count = len(events.values)  # fewer have as many files, one for each day
    with start_stack(folder / "flights") as stack:
        send(stack.broker, stack.registry, "flights", events, count)
        for way in ways:
            where = folder / f"flights-{way}"
            _one_core(bench, stack, events, "flights", way, where, "flights")


def _rows(bench: Bench, events: Events, rows: int, folder: Path) -> None:
    """Whole loads of one topic on one core: so many rows, and ten times as many."""
    with start_stack(folder) as stack, open_warehouse(stack, folder, "local[1]") as warehouse:
        send(stack.broker, stack.registry, VIEWS, events, 1000)
        warehouse.load()  # starts the worker
        for name, count in (("1x", rows), ("10x", 10 * rows)):
            send(stack.broker, stack.registry, VIEWS, events, count)
            report, seconds = timed_load(warehouse)
            assert rows_of_views(report) == count
            what = f"whole load on one core, {name} the rows"
            bench.record(what, US, count / seconds, "rows/s")
            for phase, took in report.seconds.items():
                bench.record(f"{what}: {phase}", US, took, "s")


def _child(command: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [*command, json.dumps(given)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise HeadworksError(f"{command[-1]} failed:\n{done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
