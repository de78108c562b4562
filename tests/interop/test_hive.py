"""A session of Hive reads the tables of evolving topics through the text of their views.

The session has a metastore of its own, in which it defines what the loader tells a metastore. No
Spark takes part: fastavro says what each row is.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit import topic_plans
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from hadoop_loader._tables.columns import PARTITION_COLUMN, ddl, quoted
from headworks.compatibility import check_pair
from headworks.schema import parse
from tests.evolution import value_of
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import DAY
from tests.hadoop_loader.test_local_timestamps import NOON, all_in_utc, visit
from tests.hadoop_loader.test_local_timestamps import V1 as VISIT
from tests.hadoop_loader.test_local_timestamps import V2 as LATER_VISIT
from tests.hadoop_loader.test_views import SPARK_ALONE, chain, resolved
from tests.interop import engines

pytestmark = [pytest.mark.contract, pytest.mark.timeout(900)]

LOADS = 3
ROWS = 4  # of each load


@pytest.mark.parametrize("topics", [8, pytest.param(25, marks=pytest.mark.minutes)])
def test_hive_reads_every_table_of_a_generated_evolution(tmp_path: Path, topics: int) -> None:
    world, rng = World(tmp_path / "warehouse"), random.Random(22)
    evolutions = filter(comparable, map(chain, itertools.count(5000)))
    chains = {f"topic{i}": versions for i, versions in enumerate(islice(evolutions, topics))}
    written: dict[str, list[tuple[Any, bytes]]] = {topic: [] for topic in chains}
    for step in range(LOADS):
        for topic, versions in chains.items():
            schema_id = world.register(topic, versions[step])
            for _ in range(ROWS):
                data = encoded(versions[step], value_of(versions[step], rng), schema_id)
                world.log.append(topic, data, step * DAY)
                written[topic].append((versions[step], data[5:]))
        assert not Load(world.context()).run().refused
    wanted = {
        topic: [resolved(data, old, chains[topic][-1]) for old, data in rows]
        for topic, rows in written.items()
    }
    for_spark = {t for t in chains if SPARK_ALONE.search(world.catalog.views[t])}
    assert 0 < len(for_spark) < topics / 2
    asked = [*statements(world, "before")]
    Compaction(world.context(), every=True).run()  # the files before it stay for an hour
    asked += statements(world, "after")
    found = engines.hive_rows(tmp_path / "hive", asked)
    for topic, versions in chains.items():
        for moment in ["after"] if topic in for_spark else ["before", "after"]:
            rows = found[f"{moment}.{topic}"]
            assert differences(versions[-1], rows, wanted[topic]) == [], (moment, topic)


def test_hive_shows_a_local_timestamp_in_every_time_zone_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "warehouse")
    world.register("visits", VISIT)
    visit(world, 0, VISIT, 1)
    with monkeypatch.context() as patch:  # the first load is of an earlier release
        patch.setattr(topic_plans, "field_ids_after", all_in_utc)
        Load(world.context()).run()
    world.register("visits", LATER_VISIT)
    visit(world, 1, LATER_VISIT, 2)
    Load(world.context()).run()
    asked = [*statements(world, "before")]
    Rebuild(world.context()).run("visits")
    asked += statements(world, "after")
    found = engines.hive_rows(tmp_path / "hive", asked, zone="Asia/Kolkata")
    shifted = NOON + timedelta(hours=5, minutes=30)
    for moment, wanted in (("before", shifted), ("after", NOON)):
        rows = found[f"{moment}.visits"]
        assert [datetime.fromisoformat(str(row["came"])) for row in rows] == [wanted] * 2
        left = sorted(datetime.fromisoformat(str(row["left"])) for row in rows)
        assert left == [datetime.fromisoformat("1970-01-01"), NOON]


def comparable(versions: list[Any]) -> bool:
    """Whether the last version reads the first, and Hive's text of its rows can be read.

    A field that was renamed twice may know one of its names only. Hive writes bytes inside of other
    values as they are, without quotes.
    """
    first, _, last = (parse(json.dumps(version)) for version in versions)
    nested = any(has_bytes(f["type"], top=True) for f in versions[-1]["fields"])
    return not nested and not check_pair(last, first)


def has_bytes(schema: Any, *, top: bool = False) -> bool:
    """Return whether a type has bytes inside; `top`: it is that of a column."""
    if isinstance(schema, list):
        return has_bytes(schema[1], top=top)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return any(has_bytes(f["type"]) for f in schema["fields"])
    if kind in ("array", "map"):
        return has_bytes(schema["items" if kind == "array" else "values"])
    decimal = isinstance(schema, dict) and schema.get("logicalType") == "decimal"
    return kind in ("bytes", "fixed") and not top and not decimal


def statements(world: World, database: str) -> Iterator[tuple[str, str]]:
    """Yield what defines the tables and views of a metastore in memory, and reads the views."""
    catalog = world.catalog
    yield "define", f"CREATE DATABASE {database}"
    yield "define", f"USE {database}"
    for topic, query in sorted(catalog.views.items()):
        table = query.rpartition("FROM ")[2].strip("`")  # a rebuild makes another one
        columns = ", ".join(f"{quoted(f.name)} {ddl(f.type)}" for f in catalog.columns[table])
        yield (
            "define",
            f"CREATE EXTERNAL TABLE {table} ({columns}) PARTITIONED BY ({PARTITION_COLUMN} string) "
            f"STORED AS PARQUET LOCATION 'file://{catalog.locations[table]}'",
        )
        partitions = " ".join(
            f"PARTITION ({PARTITION_COLUMN}='{day}') LOCATION 'file://{folder}'"
            for day, folder in catalog.days[table].items()
        )
        yield "define", f"ALTER TABLE {table} ADD {partitions}"
        yield "define", f"CREATE VIEW {topic}_view AS {query}"
        yield f"{database}.{topic}", f"SELECT * FROM {topic}_view"


def differences(schema: Any, found: list[engines.Row], wanted: list[Any]) -> list[Any]:
    """Return the values of Hive that are not those that Avro resolves."""
    assert len(found) == len(wanted)
    rows = sorted(found, key=lambda row: int(row["_offset"] or -1))
    return [
        (offset, f["name"], row[f["name"]], expected[f["name"]])
        for offset, (row, expected) in enumerate(zip(rows, wanted, strict=True))
        for f in schema["fields"]
        if not same(f["type"], row[f["name"]], expected[f["name"]], nested=False)
    ]


def same(schema: Any, found: Any, wanted: Any, *, nested: bool) -> bool:
    """Return whether Hive's text of a value, or its JSON inside another one, is this value."""
    if isinstance(schema, list):
        return found is None if wanted is None else same(schema[1], found, wanted, nested=nested)
    kind = schema if isinstance(schema, str) else schema["type"]
    if found is None:
        return False
    if kind in ("record", "array", "map"):
        value = found if nested else json.loads(found)
        return _same_inside(schema, kind, value, wanted)
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    return bool(_value(kind, logical, found) == _comparable(wanted))


def _same_inside(schema: Any, kind: str, found: Any, wanted: Any) -> bool:
    if kind == "record":
        each = [(f["type"], f["name"]) for f in schema["fields"]]
        return found.keys() == wanted.keys() and all(
            same(type_, found[name], wanted[name], nested=True) for type_, name in each
        )
    inner = schema["items" if kind == "array" else "values"]
    if kind == "map":
        wanted = dict(wanted)
        return found.keys() == wanted.keys() and all(
            same(inner, found[key], wanted[key], nested=True) for key in wanted
        )
    return len(found) == len(wanted) and all(
        same(inner, a, b, nested=True) for a, b in zip(found, wanted, strict=True)
    )


def _value(kind: str, logical: str | None, found: Any) -> Any:
    """Return what Hive shows as a value that can be compared."""
    if logical == "date":
        return date.fromisoformat(found)
    if logical in ("timestamp-millis", "timestamp-micros"):
        return datetime.fromisoformat(found).replace(tzinfo=UTC)
    if logical == "decimal":
        return Decimal(str(found))
    if kind in ("bytes", "fixed"):
        return bytes.fromhex(found)
    if kind == "boolean":
        return str(found).lower() == "true"
    if kind in ("int", "long"):
        return int(found)
    return _comparable(float(found)) if kind in ("float", "double") else found


def _comparable(wanted: Any) -> Any:
    return "NaN" if isinstance(wanted, float) and math.isnan(wanted) else wanted
