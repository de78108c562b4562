"""What replaces rows, on a real metastore: readers see every row once, before, during and after."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit.transaction import Parts
from hadoop_loader._fetch.position import Position
from hadoop_loader._operations.compact import Compacting
from hadoop_loader._operations.load import Loading
from hadoop_loader._operations.rebuild import Rebuilding
from hadoop_loader._operations.rewind import Rewinding
from hadoop_loader._operations.status import status_of
from hadoop_loader._spark.jobs import SparkJobs
from hadoop_loader._storage.filesystem import Place
from hadoop_loader._tables.columns import ListOf, Scalar, Struct, StructField
from hadoop_loader._tables.hive_catalog import HiveCatalog
from headworks.errors import IncompatibleError
from tests.hadoop_loader.memory import MemoryJobs, World, encoded
from tests.hadoop_loader.test_loading import DAY, V1, V2, Killed, click, killer

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

LONG: Any = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "long"}]}
DOUBLE: Any = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "double"}]}
EITHER: Any = {
    **V1,
    "fields": [V1["fields"][0], {"name": "n", "type": ["null", "double", "string"]}],
}
TEXT: Any = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "boolean"}]}


class Jobs(MemoryJobs):
    """Bins and rewrites in this process, queries in Spark."""

    def __init__(self, world: World, spark: Any) -> None:
        super().__init__(world.log)
        self._export = SparkJobs(spark, {}).export

    def export(self, query: str, folder: Place) -> None:
        self._export(query, folder)


@pytest.fixture
def parts(world: World, spark: Any, place: Place, tmp_path: Path) -> Parts:
    world.root = place / "ware house%20"
    name = f"t{uuid.uuid4().hex}"
    catalog = HiveCatalog(spark, f"{name}_files", name)
    tmp_path.joinpath(f"self-test-{spark.version}.passed").touch()
    catalog.prepare(tmp_path)
    return replace(world.parts(), jobs=Jobs(world, spark), catalog=catalog)


def view(parts: Parts) -> str:
    assert isinstance(parts.catalog, HiveCatalog)
    return f"`{parts.catalog._views}`.clicks"


def test_readers_see_every_row_once_all_the_while(world: World, parts: Parts, spark: Any) -> None:
    world.register("clicks", V1)
    for n in range(12):
        click(world, n, at=(n % 2) * DAY)
        if n % 4 == 3:
            Loading(parts).run()
    world.register("clicks", V2)
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def read() -> None:
        question = f"SELECT count(*), count(DISTINCT _partition, _offset) FROM {view(parts)}"
        while not over.is_set() or not seen:
            (row,) = spark.newSession().sql(question).collect()
            seen.append((row[0], row[1]))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        Rewinding(parts).run("clicks", Position.parse("1"))
        assert Compacting(parts, worth_it=2).everything().partitions == 2
        with pytest.raises(Killed):
            Rewinding(replace(parts, reach=killer("partitions"))).run(
                "clicks", Position.parse("earliest")
            )
        Loading(parts).run()
    finally:
        over.set()
        reader.join()
    assert set(seen) == {(12, 12)}
    rows = spark.sql(f"SELECT n, how, _load FROM {view(parts)} ORDER BY n").collect()
    assert [(r.n, r.how) for r in rows] == [(n, "mouse") for n in range(12)]


def test_a_view_is_there_while_it_is_replaced(parts: Parts, spark: Any) -> None:
    number, text = Scalar("int"), Scalar("string")
    views: list[tuple[list[StructField], str]] = [
        ([StructField("N", number, "a number")], "SELECT 1 AS `N`"),
        ([StructField("how", text), StructField("N", number, "more")], "SELECT 'x' how, 2 AS `N`"),
    ]
    put = parts.catalog.put_view
    put("clicks", *views[0], "Old.", {"turn": "0"})
    seen: set[int] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set() or not seen:
            (row,) = spark.newSession().sql(f"SELECT N FROM {view(parts)}").collect()
            seen.add(row.N)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(1, 8):
            put("clicks", *views[turn % 2], "New.", {"turn": str(turn)})
    finally:
        over.set()
        reader.join()
    assert seen <= {1, 2}
    told = spark.newSession().sql(f"DESCRIBE EXTENDED {view(parts)}").collect()
    assert [tuple(row) for row in told[:2]] == [("how", "string", None), ("N", "int", "more")]
    held = {row.col_name: row.data_type for row in told}
    assert (held["Comment"], "turn=7" in held["Table Properties"]) == ("New.", True)


def test_a_comment_is_what_the_schema_says_and_nothing_of_the_loaders_environment(
    parts: Parts, spark: Any
) -> None:
    doc = r"it's \u0041 in ${env:PATH}, ${spark.app.name} and $x"
    column, key = StructField("n", Scalar("int"), doc), "${env:PATH}"
    for _ in range(2):  # made, and altered
        parts.catalog.put_table("clicks", [column], Path("/nowhere"), doc, {"said": key})
        parts.catalog.put_view("clicks", [column], "SELECT 1 AS n", doc, {"said": key})
        for table in (view(parts), parts.catalog.source_of("clicks")):
            told = spark.sql(f"DESCRIBE EXTENDED {table}").collect()
            held = {row.col_name: row.data_type for row in told}
            assert (told[0].comment, held["Comment"]) == (doc, doc)
            assert f"said={key}" in held["Table Properties"]


def test_a_rebuilt_table_is_not_put_in_another_topics(
    world: World, parts: Parts, spark: Any
) -> None:
    world.register("clicks", V1)
    world.register("clicks__2", V1)
    click(world, 1)
    world.log.append("clicks__2", encoded(V1, {"at": 0, "n": 2}, 2))
    Loading(parts).run()
    assert Rebuilding(parts).run("clicks").number == 2
    (own,) = spark.sql(f"SELECT n FROM {view(parts)}").collect()
    (other,) = spark.sql(f"SELECT n FROM {view(parts)}__2").collect()
    assert (own.n, other.n) == (1, 2)
    world.register("clicks__2_", V1)
    world.log.append("clicks__2_", encoded(V1, {"at": 0, "n": 3}, 3))
    assert [one.topic for one in Loading(parts).run().refused] == ["clicks__2_"]


def test_a_table_that_cannot_follow_is_rebuilt(world: World, parts: Parts, spark: Any) -> None:
    world.register("clicks", V1)
    click(world, 1)
    world.register("clicks", LONG)
    click(world, 2, at=DAY, schema=LONG, schema_id=2)
    Loading(parts).run()
    world.register("clicks", DOUBLE)
    click(world, 3, schema=DOUBLE, schema_id=3)
    (refusal,) = Loading(parts).run().refused
    assert "headworks load rebuild" in refusal.reason
    assert [one["rebuilt"] for one in status_of(world.root)["refused"]] == [False]
    report = Rebuilding(parts).run("clicks")
    assert (report.kind, report.committed) == ("rebuild", True)
    kept = world.root / "_headworks" / "commits" / f"{report.number:08d}.report"
    assert json.loads(kept.read_text())["kind"] == "rebuild"
    assert [one["rebuilt"] for one in status_of(world.root)["refused"]] == [True]
    Loading(parts).run()
    world.register("clicks", EITHER)
    done = len(list((world.root / "clicks__2").glob("*/*.parquet")))
    with pytest.raises(Killed):
        Rebuilding(replace(parts, reach=killer("staged"))).run("clicks")
    left = {p.name for p in (world.root / ".rebuild").glob("clicks/*/*/part-*.parquet")}
    seen: list[tuple[str, int]] = []

    def look(step: str) -> None:
        (row,) = spark.newSession().sql(f"SELECT count(*) FROM {view(parts)}").collect()
        seen.append((step, row[0]))

    Rebuilding(replace(parts, reach=look)).run("clicks")
    assert {rows for _, rows in seen} == {3}, f"a reader saw a part of the table: {seen}"
    rebuilt = parts.log.latest()
    assert rebuilt is not None
    assert (done, left) == (3, {file.staged.rpartition("/")[2] for file in rebuilt.files})
    assert not (world.root / ".rebuild" / "clicks").exists()
    rows = spark.sql(f"SELECT n.double AS n, _offset FROM {view(parts)} ORDER BY n").collect()
    assert [r.n for r in rows] == [1.0, 2.0, 3.0]
    Loading(replace(parts, now=lambda: 7200.0)).run()
    assert not (world.root / "clicks").exists()
    assert "clicks" not in parts.catalog.tables()
    last = parts.log.latest()
    assert last is not None
    assert last.tables["clicks"].rows == 3
    world.register("clicks", TEXT)
    with pytest.raises(IncompatibleError, match="rows of version 4 cannot be read as version 5"):
        Rebuilding(parts).run("clicks")


def test_a_rebuilt_table_is_one_like_any_other(world: World, parts: Parts, spark: Any) -> None:
    old = {"type": "record", "name": "Old", "fields": [{"name": "x", "type": "int"}]}
    new = {"type": "record", "name": "New", "fields": [{"name": "y", "type": "int"}]}
    when = {"name": "when", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    first: Any = {**V1, "fields": [V1["fields"][0], when, {"name": "n", "type": old}]}
    second: Any = {**V1, "fields": [V1["fields"][0], when, {"name": "n", "type": [old, new]}]}
    world.register("clicks", first)
    times = [-62_135_596_800_000_000, 253_402_300_799_999_999, 1]  # years 1, 9999 and 1970
    for n, time in enumerate(times):
        value = {"at": 0, "when": time, "n": {"x": n}}
        world.log.append("clicks", encoded(first, value), n)
    Loading(parts).run()
    world.register("clicks", second)
    (refusal,) = Loading(parts).run().refused
    assert "column n cannot change from struct<`x`:int> to struct<`Old`:" in refusal.reason
    Rebuilding(parts).run("clicks")
    world.log.append("clicks", encoded(second, {"at": 0, "when": 5, "n": ("New", {"y": 3})}, 2), 3)
    Loading(parts).run()
    for _ in range(2):
        rows = spark.sql(
            "SELECT unix_micros(when) AS t, n.old.x AS x, n.new.y AS y, unix_millis(_timestamp) "
            f"AS at FROM {view(parts)} ORDER BY _offset"
        ).collect()
        assert [(r.t, r.x, r.y, r["at"]) for r in rows] == [
            *((time, n, None, n) for n, time in enumerate(times)),
            (5, None, 3, 3),
        ]
        Rewinding(parts).run("clicks", Position.parse("1"))
        assert Compacting(parts, worth_it=2).everything().partitions == 1


def test_a_metastore_that_was_lost_is_defined_again(world: World, parts: Parts, spark: Any) -> None:
    world.register("clicks", V1)
    for n in range(4):
        click(world, n)
        Loading(parts).run()
    Compacting(parts, worth_it=2).everything()
    click(world, 4)
    with pytest.raises(Killed):
        Loading(replace(parts, reach=killer("views"))).run()
    assert isinstance(parts.catalog, HiveCatalog)
    spark.sql(f"DROP DATABASE `{parts.catalog._views}` CASCADE")
    spark.sql(f"DROP DATABASE `{parts.catalog._files}` CASCADE")
    again = HiveCatalog(spark, parts.catalog._files, parts.catalog._views)
    for name in (parts.catalog._files, parts.catalog._views):
        spark.sql(f"CREATE DATABASE `{name}`")
    Loading(replace(parts, catalog=again)).run()
    rows = spark.sql(f"SELECT n FROM {view(parts)} ORDER BY n").collect()
    assert [r.n for r in rows] == [0, 1, 2, 3, 4]
    assert parts.log.numbers() == [1, 2, 3, 4, 5, 6]


def test_a_table_that_was_read_takes_other_words_inside_a_record(
    spark: Any, tmp_path: Path
) -> None:
    catalog = HiveCatalog(spark, "words_files", "words")
    spark.sql("CREATE DATABASE words_files")
    for doc, more in (
        ("One.", []),
        ("Another.", []),
        ("A third.", [StructField("b", Scalar("int"))]),
    ):
        inner = Struct((StructField("a", Scalar("int"), doc), *more))
        columns = [StructField("r", ListOf(inner), doc)]
        catalog.put_table("t", columns, tmp_path / "t", None, {})
        catalog.add_days("t", ["2026-01-01"])
        assert spark.table("words_files.t").collect() == []
        assert doc in str(spark.sql("DESCRIBE words_files.t").collect())
