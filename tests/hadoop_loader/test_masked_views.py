"""Sensitive columns and masked views on a real metastore, as Hive clients see them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.drop import Drop
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from hadoop_loader._spark.sql import query
from hadoop_loader._tables.hive_catalog import HiveCatalog
from tests.hadoop_loader.memory import World, encoded

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
STREET = {"name": "street", "type": "string", "sensitive": True}
PLACE = {"type": "record", "name": "Place", "fields": [STREET, {"name": "city", "type": "string"}]}
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "card", "type": "string"}]}


def schema(customer: dict[str, Any], *more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "headworks": {"topic": "orders", "event_time": "at"},
        "fields": [
            AT,
            {"name": "customer", "type": "string", "doc": "Who bought.", **customer},
            {"name": "place", "type": ["null", PLACE]},
            {"name": "n", "type": "int"},
            *more,
        ],
    }


PLAIN, SECRET = schema({}), schema({"sensitive": True})
# The mark is gone, and the name has changed.
RENAMED = schema(
    {"name": "client", "aliases": ["customer"]},
    {
        "name": "items",
        "type": {"type": "array", "items": {**ITEM, "sensitive": "pci"}},
        "default": [],
    },
)


@pytest.fixture
def context(world: World, spark: Any, tmp_path: Path) -> LoaderContext:
    world.root = tmp_path / "warehouse"
    name = f"t{uuid.uuid4().hex}"
    tmp_path.joinpath(f"self-test-{spark.version}.passed").touch()
    catalog = HiveCatalog(spark, f"{name}_files", name)
    catalog.prepare(tmp_path)
    return replace(world.context(), catalog=catalog)


def masking(context: LoaderContext, spark: Any, folder: Path) -> LoaderContext:
    """The context of a new process, whose setting wants masked views."""
    assert isinstance(context.catalog, HiveCatalog)
    views = context.catalog._views
    catalog = HiveCatalog(spark, f"{views}_files", views, f"{views}_masked")
    catalog.prepare(folder)
    return replace(context, catalog=catalog)


def order(world: World, n: int, written: dict[str, Any], schema_id: int, who: str) -> None:
    value = {"at": 0, who: "ada", "place": {"street": "Main St", "city": "Ulm"}, "n": n}
    if written is RENAMED:
        value["items"] = [{"card": "4711"}]
    world.log.append("orders", encoded(written, value, schema_id), 0)


def told(spark: Any, database: str) -> tuple[dict[str, str], str]:
    """The comments that speak of sensitive values, and the property."""
    rows = spark.sql(f"DESCRIBE EXTENDED {database}.orders").collect()
    comments = {r.col_name: r.comment for r in rows if "sensitive" in (r.comment or "")}
    held = {row.col_name: row.data_type for row in rows}
    _, _, rest = held["Table Properties"].partition("headworks.sensitive=")
    return comments, rest.partition(", headworks.")[0].partition("]")[0]


def test_sensitive_columns_are_marked_and_masked(
    world: World, context: LoaderContext, spark: Any, hive: str, tmp_path: Path
) -> None:
    context = masking(context, spark, tmp_path)
    views = context.catalog._views  # type: ignore[attr-defined]
    world.register("orders", SECRET)
    order(world, 1, SECRET, 1, "customer")
    Load(context).run()
    marked = {"customer": "sensitive: Who bought.", "place": "partly sensitive (street)"}
    for database in (views, f"{views}_files", f"{views}_masked"):
        assert told(spark, database) == (marked, "customer,place.street")
    asked = f"SELECT customer, place.street, place.city, n, `_offset` FROM {views}%s.orders"
    assert query(hive, asked % "").rows == [("ada", "Main St", "Ulm", 1, 0)]
    assert query(hive, asked % "_masked").rows == [(None, None, "Ulm", 1, 0)]


def test_a_mark_outlives_its_schema(
    world: World, context: LoaderContext, spark: Any, tmp_path: Path
) -> None:
    context = masking(context, spark, tmp_path)
    views = context.catalog._views  # type: ignore[attr-defined]
    world.register("orders", SECRET)
    order(world, 1, SECRET, 1, "customer")
    Load(context).run()
    world.register("orders", RENAMED)
    order(world, 2, RENAMED, 2, "client")
    Load(context).run()
    types = [
        [(f.name, f.dataType) for f in spark.table(f"{name}.orders").schema]
        for name in (views, f"{views}_masked")
    ]
    assert types[0] == types[1]

    def is_masked() -> bool:
        asked = "SELECT count(client), count(items), count(place.city), count(*) FROM %s.orders"
        seen = [tuple(spark.sql(asked % f"{views}{m}").collect()[0]) for m in ("", "_masked")]
        return seen == [(2, 2, 2, 2), (0, 0, 2, 2)]

    assert is_masked()
    # Both forget earlier schemas, and none of their marks.
    assert Compaction(context, min_small_files=99, every=True).run().settled == 1
    assert told(spark, f"{views}_files")[1] == "client,items,place.street"
    assert is_masked()
    Rebuild(context).run("orders")
    assert is_masked()
    Drop(context).run("orders", reload=True)
    assert not spark.catalog.tableExists(f"{views}_masked.orders")


def test_a_masked_view_that_is_missing_or_old_is_defined(
    world: World, context: LoaderContext, spark: Any, tmp_path: Path
) -> None:
    assert isinstance(context.catalog, HiveCatalog)
    masked = f"{context.catalog._views}_masked"
    world.register("orders", PLAIN)
    order(world, 1, PLAIN, 1, "customer")
    Load(masking(context, spark, tmp_path)).run()
    count = f"SELECT count(customer), count(*) FROM {masked}.orders"
    assert spark.sql(count).collect() == [(1, 1)]
    world.register("orders", SECRET)
    Load(context).run()  # by a loader without the setting
    assert spark.sql(count).collect() == [(1, 1)]
    Load(masking(context, spark, tmp_path)).run()  # nothing is new
    assert spark.sql(count).collect() == [(0, 1)]
    spark.sql(f"DROP VIEW {masked}.orders")
    Load(masking(context, spark, tmp_path)).run()
    assert spark.sql(count).collect() == [(0, 1)]
