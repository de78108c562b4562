"""The Avro-to-Hive mapping, type by type: as documented, and as Hive answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._operations.load import Load
from hadoop_loader._spark.sql import query
from hadoop_loader._tables.columns import column_type, ddl, table_columns
from hadoop_loader._tables.hive_catalog import HiveCatalog
from headworks.errors import SchemaError
from headworks.schema import parse
from tests.hadoop_loader.memory import World, encoded

pytestmark = pytest.mark.unit

Json = Any


def logical(kind: str, name: str, **more: Json) -> Json:
    return {"type": kind, "logicalType": name, **more}


def fixed(size: int, name: str = "Fx", **more: Json) -> Json:
    return {"type": "fixed", "name": name, "size": size, **more}


NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
EMPTY = {"type": "record", "name": "Empty", "fields": []}
# Avro type, Hive type, a value as written, the value that PyHive gives back.
TYPES: list[tuple[Json, str, Any, Any]] = [
    ("null", "string", None, None),
    ("boolean", "boolean", True, True),
    ("int", "int", -5, -5),
    ("long", "bigint", 2**62, 2**62),
    ("float", "double", 1.5, 1.5),
    ("double", "double", 0.1, 0.1),
    ("bytes", "binary", b"\x00\xff", b"\x00\xff"),
    ("string", "string", "grün", "grün"),
    (fixed(2), "binary", b"ab", b"ab"),
    ({"type": "enum", "name": "En", "symbols": ["A", "B"]}, "string", "B", "B"),
    ({"type": "array", "items": "float"}, "array<double>", [1.5], "[1.5]"),
    ({"type": "map", "values": "int"}, "map<string,int>", {"k": 1}, '{"k":1}'),
    (EMPTY, "struct<`_present`:boolean>", {}, '{"_present":true}'),
    (["null", "long"], "bigint", None, None),
    (["long", "null"], "bigint", 7, 7),
    (["string"], "string", "x", "x"),
    (["int", "long"], "bigint", 5, 5),
    (["float", "double"], "double", 2.5, 2.5),
    (
        ["null", "string", "long"],
        "struct<`string`:string,`long`:bigint>",
        5,
        '{"string":null,"long":5}',
    ),
    (logical("int", "date"), "date", 20_577, "2026-05-04"),
    (logical("int", "time-millis"), "int", 5, 5),
    (logical("long", "time-micros"), "bigint", 5, 5),
    (logical("long", "timestamp-millis"), "timestamp", NOON, NOON.replace(tzinfo=None)),
    (logical("long", "timestamp-micros"), "timestamp", NOON, NOON.replace(tzinfo=None)),
    (logical("long", "timestamp-nanos"), "bigint", 5, 5),
    (
        logical("long", "local-timestamp-millis"),
        "timestamp",
        NOON.replace(tzinfo=None),
        NOON.replace(tzinfo=None),
    ),
    (
        logical("bytes", "decimal", precision=9, scale=2),
        "decimal(9,2)",
        Decimal("-12.34"),
        Decimal("-12.34"),
    ),
    (
        fixed(4, "Dec", logicalType="decimal", precision=9, scale=2),
        "decimal(9,2)",
        Decimal("12.30"),
        Decimal("12.30"),
    ),
    (
        logical("bytes", "decimal", precision=50, scale=2),
        "string",
        Decimal(10) ** 45,
        "1" + "0" * 45 + ".00",
    ),
    (
        logical("string", "uuid"),
        "string",
        "12345678-1234-5678-1234-567812345678",
        "12345678-1234-5678-1234-567812345678",
    ),
    (
        fixed(12, "Dur", logicalType="duration"),
        "struct<`months`:bigint,`days`:bigint,`millis`:bigint>",
        b"\x01\0\0\0\x02\0\0\0\xff\xff\xff\xff",
        '{"months":1,"days":2,"millis":4294967295}',
    ),
    (logical("string", "no-such-type"), "string", "x", "x"),
]


@pytest.mark.parametrize(("avro", "hive_type"), [(t[0], t[1]) for t in TYPES])
def test_the_type_of_a_column(avro: Json, hive_type: str) -> None:
    assert ddl(column_type(parse(json.dumps(avro)))) == hive_type


def test_the_documentation_has_every_type(root: Path) -> None:
    text = (root / "docs" / "hadoop_loader.md").read_text(encoding="utf-8")
    for avro, hive_type, _, _ in TYPES:
        name: Json = avro if isinstance(avro, str) else ""
        if isinstance(avro, dict):
            name = avro.get("logicalType", avro["type"])
        if name and name != "no-such-type":
            assert f"`{name}`" in text, name
        if "<" not in hive_type:
            assert f"`{hive_type.partition('(')[0]}" in text, hive_type


@pytest.mark.e2e
@pytest.mark.spark
def test_what_hive_answers(spark: Any, hive: str, tmp_path: Path) -> None:
    catalog: Any = HiveCatalog(spark, "types_files", "types")
    catalog.prepare(tmp_path)
    world = World(tmp_path / "warehouse", catalog=catalog)
    schema = {
        "type": "record",
        "name": "Everything",
        "fields": [{"name": f"select_{i}", "type": t[0]} for i, t in enumerate(TYPES)],
    }
    world.register("every.thing", schema)
    value = {f"select_{i}": t[2] for i, t in enumerate(TYPES)}
    world.log.append("every.thing", encoded(schema, value))
    report = Load(world.context()).run()
    assert (report.topics[0].rows, report.topics[0].table) == (1, "every_thing")
    rows = query(hive, "SELECT * FROM types.every_thing")
    for (avro, _, _, expected), found in zip(TYPES, rows.rows[0], strict=False):
        assert found == expected, avro


def test_names_that_hive_cannot_tell_apart_are_refused() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]
    with pytest.raises(SchemaError, match="'a' and 'A' differ only in case"):
        table_columns(parse(json.dumps({"type": "record", "name": "R", "fields": fields})))


def test_names_of_the_loaders_own_columns_are_refused() -> None:
    fields = [{"name": "_offset", "type": "int"}]
    with pytest.raises(SchemaError, match="name of a column that the loader adds"):
        table_columns(parse(json.dumps({"type": "record", "name": "R", "fields": fields})))


def test_a_schema_that_is_no_record_has_one_column() -> None:
    (column,) = table_columns(parse('"long"'))
    assert (column.name, ddl(column.type)) == ("value", "bigint")
