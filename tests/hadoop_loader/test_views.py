"""Old rows follow the schema: views against fastavro's resolution, through real Spark."""

from __future__ import annotations

import copy
import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader

from hadoop_loader._operations.load import Load
from hadoop_loader._spark.sql import query
from hadoop_loader._tables.hive_catalog import HiveCatalog
from hadoop_loader._tables.old_rows import SchemaProjection, file_columns, row_values
from hadoop_loader._tables.views import view_query
from headworks.errors import IncompatibleError
from headworks.schema import parse
from tests.evolution import Names, as_column, evolved, record, value_of
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_decode import same

pytestmark = pytest.mark.unit

Json = Any
TOPICS = 4


def chain(seed: int) -> list[Json]:
    """Three versions of a schema, each readable by the later ones, in tables too."""
    rng, names = random.Random(seed), Names()
    versions = [record(rng, names, 3)]
    for _ in range(2):
        versions.append(evolved(versions[-1], rng, names, followed=True))
    return versions


@pytest.mark.e2e
@pytest.mark.spark
def test_every_row_is_as_avro_resolves_it(spark: Any, tmp_path: Path) -> None:
    catalog: Any = HiveCatalog(spark, "views_files", "views")
    catalog.prepare(tmp_path)
    world = World(tmp_path / "warehouse", catalog=catalog)
    rng = random.Random(7)
    written: dict[str, list[tuple[Json, bytes]]] = {}
    chains = {f"topic{i}": chain(1000 + i) for i in range(TOPICS)}
    for step in range(3):
        for topic, versions in chains.items():
            schema_id = world.register(topic, versions[step])
            for _ in range(4):
                value = value_of(versions[step], rng)
                data = encoded(versions[step], value, schema_id)
                world.log.append(topic, data)
                written.setdefault(topic, []).append((versions[step], data[5:]))
        report = Load(world.context()).run()
        assert not report.refused
        assert sum(t.quarantined for t in report.topics) == 0
    for topic, versions in chains.items():
        rows = spark.sql(f"SELECT * FROM views.{topic} ORDER BY _offset").toArrow().to_pylist()
        names = [f["name"] for f in versions[-1]["fields"]]
        found = [{name: row[name] for name in names} for row in rows]
        expected = [resolved(data, old, versions[-1]) for old, data in written[topic]]
        assert [row["_load"] for row in rows] == [1] * 4 + [2] * 4 + [3] * 4
        for a, b in zip(found, expected, strict=True):
            assert same(a, b), (topic, a, b)


def resolved(data: bytes, old: Json, new: Json) -> Json:
    before, after = (parse_schema(json.loads(json.dumps(s))) for s in (old, new))
    value: Any = schemaless_reader(io.BytesIO(data), before, after)
    return {f["name"]: as_column(f["type"], value[f["name"]]) for f in new["fields"]}


def history(*schemas: Json) -> list[SchemaProjection]:
    return [SchemaProjection(i, i, parse(json.dumps(s))) for i, s in enumerate(schemas, 1)]


A: Json = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}
B: Json = {"type": "record", "name": "B", "fields": [{"name": "y", "type": "int"}]}
DURATION: Json = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
UUID: Json = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
WIDE: Json = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}


def fields(*types: Json) -> Json:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)],
    }


def test_a_new_column_that_is_null_in_old_rows_is_plain() -> None:
    old, new = fields("int", A), fields("int", copy.deepcopy(A))
    new["fields"].append({"name": "x", "type": ["null", B], "default": None})
    new["fields"][1]["type"]["fields"].append(
        {"name": "z", "type": ["null", "int"], "default": None}
    )
    assert view_query("t", history(old, new)).startswith("SELECT `f0`, `f1`, `x`, `_partition`")
    # A column of that name that was dropped meanwhile has values in old files.
    again = view_query("t", history(new, old, new))
    assert "CASE WHEN coalesce(`_written`, `_load`) < 2 THEN `x`" not in again
    assert "WHEN coalesce(`_written`, `_load`) < 3 THEN" not in again


@pytest.mark.parametrize("seed", range(100))
def test_a_table_of_one_schema_is_shown_as_if_the_schema_had_come_twice(seed: int) -> None:
    one = record(random.Random(seed), Names(), 4)
    assert view_query("t", history(one)) == view_query("t", history(one, one))


@pytest.mark.parametrize("type_", [A, [A, {**B, "name": "q.A"}], DURATION, UUID, WIDE, ["null"]])
def test_all_columns_of_a_table_of_one_schema_are_plain(type_: Json) -> None:
    empty = {"type": "record", "name": "E", "fields": []}
    expected = "SELECT `f0`, `f1`, `_partition`"
    assert view_query("t", history(fields(type_, empty))).startswith(expected)


def test_untouched_columns_stay_plain() -> None:
    old = fields("int", "string")
    new = copy.deepcopy(old)
    new["fields"].append({"name": "x", "type": "long", "default": 5})
    assert view_query("t", history(old, new)) == (
        "SELECT `f0`, `f1`, "
        "CASE WHEN coalesce(`_written`, `_load`) < 2 THEN CAST('5' AS bigint) ELSE `x` END AS `x`, "
        "`_partition`, `_offset`, `_timestamp`, `_schema_version`, `_load`, "
        "coalesce(`_topic_life`, 1) AS `_topic_life`, `datepartition` FROM t"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("long", "double"),
        ("long", "float"),
        ("string", {"type": "record", "name": "X", "fields": []}),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
        ),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}),
        ("int", ["int", "string"]),
        (A, [A, B]),
        (["null", A], ["null", A, B]),
        ([A, B], A),
        (DURATION, {**A, "fields": [{"name": "months", "type": "long"}]}),
    ],
)
def test_what_parquet_cannot_follow_is_refused_at_its_path(old: Json, new: Json) -> None:
    inner = {"type": "array", "items": {**fields(old), "name": "Inner"}}
    later = {"type": "array", "items": {**fields(new), "name": "Inner"}}
    with pytest.raises(IncompatibleError, match=r"column f0\[\].f0 cannot change from"):
        file_columns(history(fields(inner), fields(later)))


@pytest.mark.parametrize(
    ("old", "new"),
    [("bytes", WIDE), (WIDE, "bytes"), (WIDE, {**WIDE, "scale": 3}), (UUID, "bytes")],
)
def test_text_that_bytes_do_not_become_is_refused_before_a_load(old: Json, new: Json) -> None:
    later = history(
        fields({"type": "array", "items": old}), fields({"type": "array", "items": new})
    )
    with pytest.raises(IncompatibleError, match=r"column f0\[\] is .* it cannot be made"):
        view_query("t", later)
    with pytest.raises(IncompatibleError):
        row_values(later[0].schema, later[1].schema, file_columns(later[:1]))


def test_numbers_whose_branch_is_not_known_become_no_union() -> None:
    old, new = history(fields(["int", "long"]), fields(["int", "long", "string"]))
    with pytest.raises(IncompatibleError, match="without changing its values"):
        row_values(old.schema, new.schema, file_columns([old]))


# Hive's grammar has none of these: such a view is for Spark alone, until a compaction of all files.
SPARK_ALONE = re.compile(
    r"transform(_values)?\(|CAST\((array\(\)|map\(\)|NULL) AS (array|map|struct)<"
)


@pytest.mark.e2e
@pytest.mark.spark
def test_hive_itself_reads_the_text_of_views(spark: Any) -> None:
    hive_parser = spark._jvm.org.apache.hadoop.hive.ql.parse.ParseDriver()
    read = left = 0
    for seed in range(60):
        versions = chain(seed)
        text = view_query("`d`.`t`", history(*versions))
        if SPARK_ALONE.search(text):
            left += 1
        else:
            hive_parser.parse(text)
            read += 1
        hive_parser.parse(view_query("`d`.`t`", history(versions[-1])))  # once all is compacted
    assert read >= 45, f"{left} of 60 views are for Spark alone"


def test_hive_takes_the_default_of_every_type() -> None:
    """As text: Hive casts to no struct, and knows neither X'00' nor timestamp_micros."""
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    day = {"type": "int", "logicalType": "date"}
    new = fields("int", "bytes", stamp, day, {"type": "array", "items": "long"}, ["null", A])
    for f, default in zip(new["fields"][1:], ["\u00ff", -1, 3, [5], None], strict=True):
        f["default"] = default
    text = view_query("t", history(fields("int"), new))
    for wanted in (
        "THEN unhex('ff') ELSE `f1`",
        "THEN CAST(CAST('-0.001000' AS decimal(20,6)) AS timestamp) ELSE `f2`",
        "THEN CAST('1970-01-04' AS date) ELSE `f3`",
        "THEN array(CAST('5' AS bigint)) ELSE `f4`",
        " `f5`, `_partition`",
    ):
        assert wanted in text


@pytest.mark.e2e
@pytest.mark.spark
def test_defaults_over_hiveserver2_and_a_dropped_then_restored_field(
    spark: Any, hive: str, tmp_path: Path
) -> None:
    catalog: Any = HiveCatalog(spark, "defaults_files", "defaults")
    catalog.prepare(tmp_path)
    world = World(tmp_path / "warehouse", catalog=catalog)
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int"}]}
    wider = {
        **inner,
        "fields": [*inner["fields"], {"name": "b", "type": "string", "default": "it's"}],
    }
    plain = {**UUID, "logicalType": "none"}
    first = {**fields("int", ["null", inner], UUID, {"type": "array", "items": "U"}), "doc": "Doc."}
    second = fields("long", ["null", wider], plain, {"type": "array", "items": "U"})
    first["fields"] += [{"name": "f4", "type": {**plain, "name": "V"}}]
    second["fields"] += [{"name": "f4", "type": {**UUID, "name": "V"}}]
    ids: Json = {"f2": bytes(range(16)), "f3": [bytes(range(16))], "f4": bytes(range(16))}
    second["headworks"] = {"topic": "t", "owner": "a-team"}
    second["fields"].append({"name": "new", "doc": "its doc", "type": "double", "default": 1.5})
    for schema, value in ((first, {"f0": 1, "f1": {"a": 1}}), (first, {"f0": 2, "f1": None})):
        schema_id = 1 if "t" in world.subjects else world.register("t", schema)
        world.log.append("t", encoded(schema, {**value, **ids}, schema_id))
    Load(world.context()).run()
    schema_id = world.register("t", second)
    value = {"f0": 2**40, "f1": {"a": 3, "b": "new"}, "new": 2.5, **ids}
    world.log.append("t", encoded(second, value, schema_id))
    # Written in version 1, loaded after version 2: the decoder and the view must agree.
    world.log.append("t", encoded(first, {"f0": 4, "f1": {"a": 4}, **ids}, 1))
    Load(world.context()).run()
    select = "SELECT f0, f1.a, f1.b, new, _schema_version, _load FROM t ORDER BY _offset"
    assert query(hive, select, database="defaults").rows == [
        (1, 1, "it's", 1.5, 1, 1),
        (2, None, None, 1.5, 1, 1),
        (2**40, 3, "new", 2.5, 2, 2),
        (4, 4, "it's", 1.5, 1, 2),
    ]
    select = "SELECT DISTINCT f2, f3[0], f4 FROM t"
    assert query(hive, select, database="defaults").rows == [
        (bytes(range(16)), bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f")
    ]
    described = {row[0]: row[1:] for row in query(hive, "DESCRIBE defaults.t").rows}
    assert described["new"] == ("double", "its doc")
    assert described["f1"][0] == "struct<a:int,b:string>"
    properties = dict(query(hive, "SHOW TBLPROPERTIES defaults.t").rows)
    assert properties["headworks.subject"] == "t-value"
    assert properties["headworks.schema.version"] == "2"
    assert (properties["headworks.topic"], properties.get("headworks.owner")) == ("t", "a-team")
    (statistics,) = (
        row[1]
        for row in query(hive, "DESCRIBE EXTENDED defaults_files.t").rows
        if row[0] == "Statistics"
    )
    assert statistics.endswith("4 rows")
