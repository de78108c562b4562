"""Replacing rows on a real metastore: readers see every row once, at every moment."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.transaction import LoaderContext
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._iceberg.java_tables import check_iceberg
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.drop import Drop
from hadoop_loader._operations.erase import Erase, EraseCondition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from hadoop_loader._operations.retention import TableRetention
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._operations.status import warehouse_status
from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._tables.columns import ListColumn, ScalarColumn, StructColumn, StructField
from hadoop_loader._tables.hive_catalog import HiveCatalog
from headworks.errors import IncompatibleError, UsageError
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import DAY, V1, V2, Killed, click, killer

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

LONG: Any = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "long"}]}
DOUBLE: Any = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "double"}]}
EITHER: Any = {
    **V1,
    "fields": [V1["fields"][0], {"name": "n", "type": ["null", "double", "string"]}],
}
TEXT: Any = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "boolean"}]}


@pytest.fixture
def context(world: World, spark: Any, place: AnyPath, tmp_path: Path) -> LoaderContext:
    world.root = place / "ware house%20"
    name = f"t{uuid.uuid4().hex}"
    catalog = HiveCatalog(spark, f"{name}_files", name)
    tmp_path.joinpath(f"self-test-{spark.version}.passed").touch()
    catalog.prepare(tmp_path)
    return replace(world.context(), catalog=catalog)


def view(context: LoaderContext) -> str:
    assert isinstance(context.catalog, HiveCatalog)
    return f"`{context.catalog._views}`.clicks"


def test_readers_see_every_row_once_all_the_while(
    world: World, context: LoaderContext, spark: Any
) -> None:
    world.register("clicks", V1)
    for n in range(12):
        click(world, n, at=(n % 2) * DAY)
        if n % 4 == 3:
            Load(context).run()
    world.register("clicks", V2)
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def read() -> None:
        question = f"SELECT count(*), count(DISTINCT _partition, _offset) FROM {view(context)}"
        while not over.is_set() or not seen:
            (row,) = spark.newSession().sql(question).collect()
            seen.append((row[0], row[1]))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        Rewind(context).run("clicks", RewindPosition.parse("1"))
        assert Compaction(context, min_small_files=2).run().partitions == 2
        with pytest.raises(Killed):
            Rewind(replace(context, on_step=killer("partitions"))).run(
                "clicks", RewindPosition.parse("earliest")
            )
        Load(context).run()
    finally:
        over.set()
        reader.join()
    assert set(seen) == {(12, 12)}
    rows = spark.sql(f"SELECT n, how, _load FROM {view(context)} ORDER BY n").collect()
    assert [(r.n, r.how) for r in rows] == [(n, "mouse") for n in range(12)]


def test_statistics_that_somebody_computed_do_not_outlive_a_load(
    world: World, context: LoaderContext, spark: Any
) -> None:
    def statistics() -> str:
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {files}").collect()
        return str(next(row[1] for row in described if row[0] == "Statistics"))

    assert isinstance(context.catalog, HiveCatalog)
    files = context.catalog.source_of("clicks")
    world.register("clicks", V1)
    click(world, 0, at=0)
    Load(context).run()
    assert statistics().endswith(" 1 rows")
    spark.sql(f"ANALYZE TABLE {files} COMPUTE STATISTICS FOR COLUMNS n")
    for n in range(1, 4):
        click(world, n, at=0)
    Load(context).run()
    assert statistics().endswith(" 4 rows")


def test_rows_days_and_tables_leave_the_metastore(
    world: World, context: LoaderContext, spark: Any
) -> None:
    world.register("clicks", V1)
    for n in range(6):
        click(world, n, at=n * DAY)
    Load(context).run()
    world.register("clicks", V2)
    Load(context).run()
    count = f"SELECT count(*), min(n), max(how) FROM {view(context)}"
    assert Compaction(context, min_small_files=99, every=True).run().settled == 1
    assert spark.sql(count).collect() == [(6, 0, "mouse")]
    assert Erase(context).run(EraseCondition.parse("n = 0")).rows == {"clicks": 1}
    assert spark.sql(count).collect() == [(5, 1, "mouse")]
    later = replace(context, now=lambda: 5.5 * 86_400, policy=Policy(keep_days=2))
    assert TableRetention(later).run_after().rows == 2
    assert spark.sql(count).collect() == [(3, 3, "mouse")]
    click(world, 9, at=DAY)
    Load(context).run()
    assert spark.sql(count).collect() == [(4, 3, "mouse")]
    Drop(context).run("clicks", reload=True)
    assert not spark.catalog.tableExists(view(context))
    Load(context).run()
    assert spark.sql(count).collect() == [(7, 0, "mouse")]


def test_a_view_is_there_while_it_is_replaced(context: LoaderContext, spark: Any) -> None:
    number, text = ScalarColumn("int"), ScalarColumn("string")
    views: list[tuple[list[StructField], str]] = [
        ([StructField("N", number, "a number")], "SELECT 1 AS `N`"),
        ([StructField("how", text), StructField("N", number, "more")], "SELECT 'x' how, 2 AS `N`"),
    ]
    put = context.catalog.put_view
    put("clicks", *views[0], "Old.", {"turn": "0"})
    seen: set[int] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set() or not seen:
            (row,) = spark.newSession().sql(f"SELECT N FROM {view(context)}").collect()
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
    told = spark.newSession().sql(f"DESCRIBE EXTENDED {view(context)}").collect()
    assert [tuple(row) for row in told[:2]] == [("how", "string", None), ("N", "int", "more")]
    held = {row.col_name: row.data_type for row in told}
    assert (held["Comment"], "turn=7" in held["Table Properties"]) == ("New.", True)


def test_a_comment_is_what_the_schema_says_and_nothing_of_the_loaders_environment(
    context: LoaderContext, spark: Any
) -> None:
    doc = r"it's \u0041 in ${env:PATH}, ${spark.app.name} and $x"
    column, key = StructField("n", ScalarColumn("int"), doc), "${env:PATH}"
    for _ in range(2):  # made, and altered
        context.catalog.put_table("clicks", [column], Path("/nowhere"), doc, {"said": key})
        context.catalog.put_view("clicks", [column], "SELECT 1 AS n", doc, {"said": key})
        for table in (view(context), context.catalog.source_of("clicks")):
            told = spark.sql(f"DESCRIBE EXTENDED {table}").collect()
            held = {row.col_name: row.data_type for row in told}
            assert (told[0].comment, held["Comment"]) == (doc, doc)
            assert f"said={key}" in held["Table Properties"]


def test_a_rebuilt_table_is_not_put_in_another_topics(
    world: World, context: LoaderContext, spark: Any
) -> None:
    world.register("clicks", V1)
    world.register("clicks__2", V1)
    click(world, 1)
    world.log.append("clicks__2", encoded(V1, {"at": 0, "n": 2}, 2))
    Load(context).run()
    assert Rebuild(context).run("clicks").number == 2
    (own,) = spark.sql(f"SELECT n FROM {view(context)}").collect()
    (other,) = spark.sql(f"SELECT n FROM {view(context)}__2").collect()
    assert (own.n, other.n) == (1, 2)
    world.register("clicks__2_", V1)
    world.log.append("clicks__2_", encoded(V1, {"at": 0, "n": 3}, 3))
    assert [one.topic for one in Load(context).run().refused] == ["clicks__2_"]


def test_a_table_that_cannot_follow_is_rebuilt(
    world: World, context: LoaderContext, spark: Any
) -> None:
    world.register("clicks", V1)
    click(world, 1)
    world.register("clicks", LONG)
    click(world, 2, at=DAY, schema=LONG, schema_id=2)
    Load(context).run()
    world.register("clicks", DOUBLE)
    click(world, 3, schema=DOUBLE, schema_id=3)
    context = replace(context, policy=Policy(rebuild="never"))
    (refusal,) = Load(context).run().refused
    assert "headworks load rebuild" in refusal.reason
    assert [one["rebuilt"] for one in warehouse_status(world.root)["refused"]] == [False]
    report = Rebuild(context).run("clicks")
    assert (report.kind, report.committed) == ("rebuild", True)
    kept = world.root / "_headworks" / "commits" / f"{report.number:08d}.report"
    assert json.loads(kept.read_text())["kind"] == "rebuild"
    assert [one["rebuilt"] for one in warehouse_status(world.root)["refused"]] == [True]
    Load(context).run()
    world.register("clicks", EITHER)
    done = len(list((world.root / "clicks__2").glob("*/*.parquet")))
    with pytest.raises(Killed):
        Rebuild(replace(context, on_step=killer("staged"))).run("clicks")
    left = {p.name for p in (world.root / ".rebuild").glob("clicks/*/*/*/load-*.parquet")}
    seen: list[tuple[str, int]] = []

    def look(step: str) -> None:
        (row,) = spark.newSession().sql(f"SELECT count(*) FROM {view(context)}").collect()
        seen.append((step, row[0]))

    Rebuild(replace(context, on_step=look)).run("clicks")
    assert {rows for _, rows in seen} == {3}, f"a reader saw a part of the table: {seen}"
    rebuilt = context.log.latest()
    assert rebuilt is not None
    assert (done, left) == (3, {file.staged.rpartition("/")[2] for file in rebuilt.files})
    assert not (world.root / ".rebuild" / "clicks").exists()
    rows = spark.sql(f"SELECT n.double AS n, _offset FROM {view(context)} ORDER BY n").collect()
    assert [r.n for r in rows] == [1.0, 2.0, 3.0]
    Load(replace(context, now=lambda: 7200.0)).run()
    assert not (world.root / "clicks").exists()
    assert "clicks" not in context.catalog.tables()
    last = context.log.latest()
    assert last is not None
    assert last.tables["clicks"].rows == 3
    world.register("clicks", TEXT)
    with pytest.raises(IncompatibleError, match="rows of version 4 cannot be read as version 5"):
        Rebuild(context).run("clicks")


def test_a_rebuilt_table_is_one_like_any_other(
    world: World, context: LoaderContext, spark: Any
) -> None:
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
    Load(context).run()
    world.register("clicks", second)
    context = replace(context, policy=Policy(rebuild="never"))
    (refusal,) = Load(context).run().refused
    assert "column n cannot change from struct<`x`:int> to struct<`Old`:" in refusal.reason
    Rebuild(context).run("clicks")
    world.log.append("clicks", encoded(second, {"at": 0, "when": 5, "n": ("New", {"y": 3})}, 2), 3)
    Load(context).run()
    for _ in range(2):
        rows = spark.sql(
            "SELECT unix_micros(when) AS t, n.old.x AS x, n.new.y AS y, unix_millis(_timestamp) "
            f"AS at FROM {view(context)} ORDER BY _offset"
        ).collect()
        assert [(r.t, r.x, r.y, r["at"]) for r in rows] == [
            *((time, n, None, n) for n, time in enumerate(times)),
            (5, None, 3, 3),
        ]
        Rewind(context).run("clicks", RewindPosition.parse("1"))
        assert Compaction(context, min_small_files=2).run().partitions == 1


def test_dates_outside_the_years_1_to_9999_are_kept(
    world: World, context: LoaderContext, spark: Any
) -> None:
    """Only the event time must be a date of the calendar. Others keep every value of Avro."""
    kinds = {"day": ("int", "date"), "time": ("long", "timestamp-micros")}
    fields = [
        {"name": name, "type": {"type": base, "logicalType": logical}}
        for name, (base, logical) in kinds.items()
    ]
    schema: Any = {**V1, "fields": [V1["fields"][0], *fields]}
    world.register("clicks", schema)
    days = [2_932_897, -719_163, 2**31 - 1, -(2**31)]  # 10000-01-01, 0000-12-31, and the bounds
    for n, day in enumerate(days):
        value = {"at": 0, "day": day, "time": max(min(day * 86_400_000_000, 2**62), -(2**62))}
        world.log.append("clicks", encoded(schema, value), n)
        if n % 2:
            Load(context).run()
    assert Compaction(context, min_small_files=2).run().partitions == 1
    found = spark.sql(
        "SELECT unix_date(day) AS day, unix_micros(time) AS time, CAST(day AS string) AS shown,"
        f" day > DATE'9999-12-31' AS later FROM {view(context)} ORDER BY _offset"
    ).collect()
    assert [row.day for row in found] == days
    assert [row.time for row in found[:2]] == [day * 86_400_000_000 for day in days[:2]]
    assert [row.shown for row in found[:2]] == ["+10000-01-01", "0000-12-31"]
    assert [row.later for row in found] == [True, False, True, False]


def test_a_metastore_that_was_lost_is_defined_again(
    world: World, context: LoaderContext, spark: Any
) -> None:
    world.register("clicks", V1)
    for n in range(4):
        click(world, n)
        Load(context).run()
    Compaction(context, min_small_files=2).run()
    click(world, 4)
    with pytest.raises(Killed):
        Load(replace(context, on_step=killer("views"))).run()
    assert isinstance(context.catalog, HiveCatalog)
    spark.sql(f"DROP DATABASE `{context.catalog._views}` CASCADE")
    spark.sql(f"DROP DATABASE `{context.catalog._files}` CASCADE")
    again = HiveCatalog(spark, context.catalog._files, context.catalog._views)
    for name in (context.catalog._files, context.catalog._views):
        spark.sql(f"CREATE DATABASE `{name}`")
    Load(replace(context, catalog=again)).run()
    rows = spark.sql(f"SELECT n FROM {view(context)} ORDER BY n").collect()
    assert [r.n for r in rows] == [0, 1, 2, 3, 4]
    assert context.log.numbers() == [1, 2, 3, 4, 5, 6]


def test_a_table_that_was_read_takes_other_words_inside_a_record(
    spark: Any, tmp_path: Path
) -> None:
    catalog = HiveCatalog(spark, "words_files", "words")
    spark.sql("CREATE DATABASE words_files")
    for doc, more in (
        ("One.", []),
        ("Another.", []),
        ("A third.", [StructField("b", ScalarColumn("int"))]),
    ):
        inner = StructColumn((StructField("a", ScalarColumn("int"), doc), *more))
        columns = [StructField("r", ListColumn(inner), doc)]
        catalog.put_table("t", columns, tmp_path / "t", None, {})
        catalog.add_days("t", ["2026-01-01"])
        assert spark.table("words_files.t").collect() == []
        assert doc in str(spark.sql("DESCRIBE words_files.t").collect())


def test_a_session_without_icebergs_jar_is_refused_with_the_way_to_get_it(spark: Any) -> None:
    with pytest.raises(UsageError, match="class path has no Iceberg") as error:
        check_iceberg(spark)
    assert "org.apache.iceberg:iceberg-spark-runtime" in str(error.value)


def test_a_session_has_room_for_the_code_of_many_statements(spark: Any) -> None:
    # A session that only loads uses the first compiler alone, to whose code Java gives 48 MB.
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    room = sum(pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code"))
    assert room >= 150 << 20
