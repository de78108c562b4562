"""The plan refuses columns and views that a metastore cannot store, for their topic alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._operations.load import Load
from hadoop_loader._tables.columns import STRING, StructColumn, StructField, quoted
from hadoop_loader._tables.hive_catalog import MAX_VIEW_CHARACTERS, HiveCatalog
from headworks.compatibility._columns import (
    MAX_COLUMN_NAME_CHARACTERS,
    MAX_COLUMN_TYPE_CHARACTERS,
)
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import V1, click, numbers

pytestmark = pytest.mark.unit

LONG_NAME = {"name": "c" * (MAX_COLUMN_NAME_CHARACTERS + 1), "type": "int", "default": 0}
LONG_TYPE = {
    "name": "s",
    "default": {},
    "type": {
        "type": "record",
        "name": "S",
        "fields": [{"name": "m" * MAX_COLUMN_TYPE_CHARACTERS, "type": "int", "default": 0}],
    },
}
WIDE = [{"name": f"{n}_{'w' * 700}".replace("0", "zero"), "type": "int"} for n in range(100, 160)]


def schema(*more: Any) -> Any:
    fields = [{**one, "name": f"c{one['name']}", "default": one.get("default", 0)} for one in more]
    return {**V1, "fields": [*V1["fields"], *fields]}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (schema(LONG_NAME), "has a name of 769 characters, and a metastore takes 767 (column ccc"),
        (schema(LONG_TYPE), "has a text of 32,684 characters"),
        (schema(*WIDE), "the embedded metastore takes 32,300"),
    ],
)
def test_only_the_topic_that_a_metastore_cannot_store_is_refused(
    world: World, bad: Any, reason: str
) -> None:
    good = world.register("clicks", V1)
    before = world.register("evolved", V1)
    click(world, 0, schema_id=good)
    world.log.append("evolved", encoded(V1, {"at": 0, "n": 1}, before))
    assert Load(world.context(embedded=True)).run().refused == ()
    world.register("evolved", bad)
    world.register("new", bad)
    for topic in ("evolved", "new"):
        world.log.append(topic, b"")
    click(world, 3, schema_id=good)
    report = Load(world.context(embedded=True)).run()
    assert [one.topic for one in report.refused] == ["evolved", "new"]
    assert all(reason in one.reason and "\n  fix: " in one.reason for one in report.refused)
    assert numbers(world) == [0, 3]
    last = world.context().log.latest()
    assert last is not None
    assert (last.committed("evolved"), last.committed("new")) == ({0: 1}, {})


def test_a_metastore_of_its_own_stores_longer_texts(world: World) -> None:
    world.register("new", schema(LONG_TYPE, *WIDE))
    world.log.append("new", b"")
    assert Load(world.context()).run().refused == ()


@pytest.mark.spark
@pytest.mark.e2e
def test_the_embedded_metastore_stores_everything_up_to_the_limits(
    spark: Any, tmp_path: Path
) -> None:
    catalog = HiveCatalog(spark, "limits_files", "limits")
    catalog.prepare(tmp_path)
    member = "m" * (MAX_COLUMN_TYPE_CHARACTERS - len("struct<:string>"))
    columns = [
        StructField("n" * MAX_COLUMN_NAME_CHARACTERS, STRING, "\N{GRINNING FACE}" * 300),
        StructField("t", StructColumn((StructField(member, STRING),))),
    ]
    plain = [StructField("t", StructColumn((StructField("m", STRING),)))]
    for name, first in (("new", columns), ("altered", plain)):
        catalog.put_table(name, first, tmp_path / name, None, {})
        catalog.put_table(name, columns, tmp_path / name, None, {})
        start = f"SELECT {', '.join(quoted(one.name) for one in columns)} FROM "
        end = f"{catalog.source_of(name)} WHERE '' <> '"
        query = start + end + "x" * (MAX_VIEW_CHARACTERS - len(start)) + "'"
        catalog.put_view(name, columns, query, None, {})
        catalog.put_view(name, columns, query, None, {})
    comment = spark.sql("DESCRIBE limits.new").first()["comment"]
    assert comment == "\N{GRINNING FACE}" * 124 + "…"
