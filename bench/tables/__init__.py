"""The warehouse's tables: what a change of schema costs, and what Iceberg costs.

Two topics get the same number of rows in the same number of files. One has never changed its
schema, and the other has changed it halfway. Both are compacted and then queried. Apart from them,
400 topics are published to an Iceberg catalog.
"""

from __future__ import annotations

import copy
import io
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from pyhive import hive

from bench.frame import Bench
from bench.loader.data import TEN_MINUTES_MS, Events, page_views, send, send_each
from bench.loader.installation import open_warehouse, start_stack
from bench.processes import Usage
from hadoop_loader import Warehouse

TITLE = "The warehouse's tables: compaction and queries of an evolved table, and Iceberg"
STEADY = "a table that never evolved"
EVOLVED = "an evolved table"
ICEBERG = "Iceberg's runtime"
COMPACTION = "compaction"
_TOPICS = {STEADY: "steady", EVOLVED: "evolved"}
_LOADS = 16  # each makes a file in each table
_POM = Path(__file__).resolve().parents[2] / "tests" / "interop" / "iceberg.xml"
QUERIES = {
    "count by device": "SELECT device, count(*), sum(millis) FROM {} GROUP BY device",
    "a field of a record": "SELECT header.service, avg(score) FROM {} GROUP BY header.service",
    "the new columns": "SELECT count(*), sum(size(tests)) FROM {} WHERE NOT member_only",
}
_REPEATS = 15
_KNOWN_LOADS = 5  # of one table
_NEW_FIELDS: dict[str, Any] = {"tests": {}, "member_only": False}


def run(bench: Bench) -> None:
    """Measure everything."""
    rows = 5_000 if bench.quick else 40_000
    for number in bench.rounds(full=3):
        _evolution(bench, rows, bench.folder / f"evolution-{number}", reverse=bool(number % 2))
        if number == 0:  # most of its time makes 400 tables in the metastore
            _iceberg(bench, 40 if bench.quick else 400, bench.folder / "iceberg")
    _bars(bench, 40 if bench.quick else 400)


def _bars(bench: Bench, topics: int) -> None:
    bench.bar(
        "compaction that fills in defaults, beside one that does not",
        at_most=1.3,
        got=bench.ratio(COMPACTION, EVOLVED, STEADY),
        unit="x the time",
    )
    for query in QUERIES:
        bench.bar(
            f"{query}, on a compacted evolved table beside one that never evolved",
            at_most=1.1,
            got=bench.ratio(query, EVOLVED, STEADY),
            unit="x the time",
        )
    bench.bar(
        f"{topics} new tables published to Iceberg",
        at_most=30,
        got=bench.median(_published(topics), ICEBERG),
        unit="s",
    )
    bench.bar(
        "one table published to Iceberg",
        at_most=0.2,
        got=bench.median(_published(1), ICEBERG),
        unit="s",
    )


def _evolution(bench: Bench, rows: int, folder: Path, *, reverse: bool) -> None:
    """Load both tables, then compact them one after the other, then query them in turn."""
    old, new = _versions()
    order = sorted(_TOPICS.items(), reverse=reverse)
    with start_stack(folder) as stack, open_warehouse(stack, folder, "local[2]") as warehouse:
        for load in range(_LOADS):
            for who, topic in order:
                events = old if who == EVOLVED and load < _LOADS // 2 else new
                send(stack.broker, stack.registry, topic, events, rows)
            warehouse.load()
        for who, topic in order:
            spent = Usage(os.getpid())
            cpu, began = spent.now().cpu, time.perf_counter()
            report = warehouse.compact(topic, every=True)
            seconds = time.perf_counter() - began
            assert report.files_before >= _LOADS, report
            bench.record(COMPACTION, who, seconds, "s", cpu=spent.now().cpu - cpu, cpu_unit="CPU s")
        for query, text in QUERIES.items():
            _query(bench, warehouse, query, text)


def _query(bench: Bench, warehouse: Warehouse, query: str, text: str) -> None:
    """Run a query of both tables in turn, and keep the fastest time of each."""
    host, port = warehouse.serve()
    best = dict.fromkeys(_TOPICS, float("inf"))
    with hive.connect(host=host, port=port, auth="NOSASL") as connection:
        cursor = connection.cursor()
        for _ in range(_REPEATS):
            for who, topic in _TOPICS.items():
                began = time.perf_counter()
                cursor.execute(text.format(topic))
                assert cursor.fetchall()
                best[who] = min(best[who], time.perf_counter() - began)
    for who, seconds in best.items():
        bench.record(query, who, seconds, "s")


def _versions() -> tuple[Events, Events]:
    """The events before and after the schema grew: two more fields, and a long that was an int."""
    events = page_views(TEN_MINUTES_MS)
    new, old = copy.deepcopy(events.schema), copy.deepcopy(events.schema)
    for field in new["fields"]:
        if field["name"] in _NEW_FIELDS:
            field["default"] = _NEW_FIELDS[field["name"]]
    old["fields"] = [field for field in old["fields"] if field["name"] not in _NEW_FIELDS]
    [millis] = [field for field in old["fields"] if field["name"] == "millis"]
    millis["type"] = "int"
    writer, reader = parse_schema(copy.deepcopy(old)), parse_schema(copy.deepcopy(new))
    values = []
    for value in events.values:
        out = io.BytesIO()
        schemaless_writer(out, writer, schemaless_reader(io.BytesIO(value), reader, None))
        values.append(out.getvalue())
    return Events(old, tuple(values)), Events(new, events.values)


def _iceberg(bench: Bench, topics: int, folder: Path) -> None:
    """Publish so many new tables, and then one of them again, a few times."""
    jars = bench.folder / "iceberg-jars"
    if not jars.is_dir() and not _fetch_jars(bench, jars):
        return
    conf = folder / "conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text(f"spark.driver.extraClassPath {jars}/*\n")
    before = os.environ.get("SPARK_CONF_DIR")
    os.environ["SPARK_CONF_DIR"] = str(conf)
    try:
        _publish(bench, topics, folder)
    finally:
        if before is None:
            del os.environ["SPARK_CONF_DIR"]
        else:
            os.environ["SPARK_CONF_DIR"] = before


def _publish(bench: Bench, topics: int, folder: Path) -> None:
    events = page_views(TEN_MINUTES_MS)
    url = f"jdbc:sqlite:{folder}/iceberg.db"
    with (
        start_stack(folder) as stack,
        open_warehouse(stack, folder, "local[2]", iceberg=url) as warehouse,
    ):
        send(stack.broker, stack.registry, "first", events, 100)
        warehouse.load()  # connects to the catalog, and loads Iceberg's classes
        for count in (topics, *[1] * _KNOWN_LOADS):
            names = [f"views.{n}" for n in range(count)]
            send_each(stack.broker, stack.registry, names, events, 100)
            report = warehouse.load()
            assert len(report.topics) >= count, report
            assert not report.refused, report
            bench.record(_published(count), ICEBERG, report.seconds["publish"], "s")


def _published(topics: int) -> str:
    return "one known table published" if topics == 1 else f"{topics} new tables published"


def _fetch_jars(bench: Bench, folder: Path) -> bool:
    """Have Maven fetch Iceberg's jars, as docs/tasks/iceberg.md says; False, and why, without."""
    if shutil.which("mvn") is None:
        bench.missing(ICEBERG, "Maven fetches its jar, and there is no `mvn`")
        return False
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(_POM), *goal]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        bench.missing(ICEBERG, (done.stdout.strip().splitlines() or ["Maven failed"])[-1])
    return not done.returncode
