"""Commits as Iceberg snapshots, by Iceberg's own API, and as others read them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader import WarehouseConfig
from hadoop_loader._commit import topic_plans
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.erase import Erase, EraseCondition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._spark.session import start_session, stop_session
from hadoop_loader._tables.hive_catalog import HiveCatalog
from tests.evolution import value_of
from tests.hadoop_loader.memory import encoded
from tests.hadoop_loader.test_decode import same
from tests.hadoop_loader.test_loading import DAY, V1, V2, Killed, click, killer
from tests.hadoop_loader.test_local_timestamps import NOON, all_in_utc, visit
from tests.hadoop_loader.test_local_timestamps import V1 as VISIT
from tests.hadoop_loader.test_local_timestamps import V2 as LATER_VISIT
from tests.hadoop_loader.test_views import chain
from tests.interop import engines, iceberg
from tests.interop.published import Published

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

AS_STORED = "map('ignoreNullFields', 'false', 'timeZone', 'UTC')"
READERS = {"pyiceberg": iceberg.pyiceberg_rows, "duckdb": iceberg.duckdb_rows}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("iceberg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(iceberg.spark_conf(folder / "conf")))
        spark = start_session(WarehouseConfig(data_dir=folder, bootstrap="", registry=""))
        yield spark
        stop_session(spark)


@pytest.fixture
def published(session: Any, tmp_path: Path) -> Published:
    return Published(session, tmp_path, f"jdbc:sqlite:{tmp_path}/iceberg.db")


def table_of(published: Published, name: str = "clicks") -> Any:
    return iceberg.pyiceberg_table(Path(published.url.removeprefix("jdbc:sqlite:")), name)


def numbers(published: Published, reader: str = "pyiceberg") -> list[int]:
    return sorted(row["n"] for row in READERS[reader](table_of(published)))


@pytest.mark.timeout(900)  # of 12, 36 tables are published, and 12 views made
@pytest.mark.parametrize("histories", [3, pytest.param(12, marks=pytest.mark.minutes)])
def test_generated_histories_read_as_their_views(
    published: Published, session: Any, tmp_path: Path, histories: int
) -> None:
    chains = published_histories(published, histories)
    database = f"views{histories}"  # the session outlives the warehouse
    views = HiveCatalog(session, f"{database}_files", database)
    views.prepare(tmp_path)
    Load(published.context(catalog=views)).run()  # the metastore was lost: it has all of them now
    spark41 = engines.spark41_rows(published.url, iceberg.NAMESPACE, [*chains])
    for topic in chains:
        query = "SELECT * EXCEPT (_partition, datepartition), _partition AS _topic_partition"
        query += f" FROM {database}.{topic} ORDER BY _offset"
        view = session.sql(query).toArrow().to_pylist()
        assert spark41[topic] == view_as_json(session, query)
        table = table_of(published, topic)
        for reader, rows in READERS.items():
            found = rows(table)
            assert [row["_offset"] for row in found] == [*range(12)], (topic, reader)
            for row, wanted in zip(found, view, strict=True):
                assert same(row, wanted), (topic, reader)


def published_histories(published: Published, count: int) -> dict[str, list[Any]]:
    """Load and publish topics in each of their three versions; return the versions by topic."""
    rng, world = random.Random(22), published.world
    chains = {f"topic{i}": chain(3000 + i) for i in range(count)}
    for step in range(3):
        for topic, versions in chains.items():
            schema_id = world.register(topic, versions[step])
            for _ in range(4):
                data = encoded(versions[step], value_of(versions[step], rng), schema_id)
                world.log.append(topic, data, step * DAY)
        published.load()
    return chains


def test_local_timestamps_are_in_no_time_zone_unless_the_files_are_in_utc(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_visits(published, monkeypatch)

    def assert_reads(first: datetime) -> None:
        for reader, rows in READERS.items():
            assert_times(rows(table_of(published, "visits")), first, reader)
        spark41 = engines.spark41_rows(published.url, iceberg.NAMESPACE, ["visits"])["visits"]
        zone = "" if first.tzinfo is None else "Z"
        assert {row["came"] for row in spark41} == {f"2026-03-08T02:30:00.123{zone}"}
        left = {"1970-01-01T00:00:00.000", "2026-03-08T02:30:00.123"}
        assert {row["left"] for row in spark41} == left

    assert_reads(NOON.replace(tzinfo=UTC))
    Rebuild(published.context()).run("visits")
    assert_reads(NOON)


def publish_visits(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load local timestamps twice: an earlier release writes them in UTC, and then this one."""
    world = published.world
    world.register("visits", VISIT)
    visit(world, 0, VISIT, 1)
    with monkeypatch.context() as patch:
        patch.setattr(topic_plans, "field_ids_after", all_in_utc)
        published.load()
    world.register("visits", LATER_VISIT)
    visit(world, 1, LATER_VISIT, 2)
    published.load()


def assert_times(found: list[Any], first: datetime, reader: str) -> None:
    """Assert that a reader has the two visits, with `first` in the columns of the first load."""
    found = sorted(found, key=lambda row: row["n"])
    assert [row["left"] for row in found] == [datetime.fromisoformat("1970-01-01"), NOON], reader
    for row in found:
        times = [row["came"], row["place"]["open"], *row["stops"], dict(row["marks"])["a"]]
        assert times == [first] * 4, reader


@pytest.mark.minutes
def test_trino_reads_generated_histories(published: Published) -> None:
    """As pyiceberg, whose rows are those of the views (see the first test)."""
    need_java25()
    topics = [*published_histories(published, 12)]
    found = engines.trino_rows(published.url, iceberg.NAMESPACE, topics)
    for topic in topics:
        for row, wanted in zip(
            found[topic], iceberg.pyiceberg_rows(table_of(published, topic)), strict=True
        ):
            assert same(row, wanted), topic


@pytest.mark.minutes
def test_trino_reads_local_timestamps(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_java25()
    publish_visits(published, monkeypatch)

    def rows() -> list[Any]:
        return engines.trino_rows(published.url, iceberg.NAMESPACE, ["visits"])["visits"]

    assert_times(rows(), NOON.replace(tzinfo=UTC), "trino")
    Rebuild(published.context()).run("visits")
    assert_times(rows(), NOON, "trino")


def need_java25() -> None:
    """Skip the test if Trino cannot run."""
    if engines.java_since(25) is None:
        pytest.skip("Trino needs Java 25: set JAVA_HOME to one")


def view_as_json(session: Any, query: str) -> list[Any]:
    rows = session.sql(f"SELECT to_json(struct(*), {AS_STORED}) FROM ({query})").collect()
    return [json.loads(row[0]) for row in rows]


def test_snapshots_name_their_commit_and_a_filter_on_the_event_time_reads_its_day(
    published: Published,
) -> None:
    published.world.register("clicks", V1)
    for n in range(6):
        click(published.world, n, at=n * DAY)
        published.load()
    table = table_of(published)
    snapshots = table.metadata.snapshots
    assert [one.summary.operation.value for one in snapshots] == ["append"] * 6
    assert [one.summary["headworks.load"] for one in snapshots] == [*"123456"]
    assert snapshots[-1].summary["headworks.offsets"] == '{"0": 2, "1": 2, "2": 2}'
    assert table.metadata.format_version == 3
    assert str(table.spec().fields[0].transform) == "day"
    assert not [*Path(str(published.world.root), "_iceberg").rglob("*.crc")]
    day = "at >= '1970-01-03T00:00:00+00:00' and at < '1970-01-04T00:00:00+00:00'"
    assert len(list(table.scan(row_filter=day).plan_files())) == 1
    assert len(list(table.scan().plan_files())) == 6


def test_a_file_of_rows_of_another_day_is_found_by_a_filter(published: Published) -> None:
    # Its folder is of the day in which the log got the rows: they had no event time then.
    published.world.register("clicks", {**V1, "headworks": {"topic": "clicks"}})
    published.world.log.append("clicks", encoded(V1, {"at": 5 * DAY, "n": 1}), 2 * DAY)
    published.load()
    published.world.register("clicks", V1)
    click(published.world, 2, at=2 * DAY, schema_id=2)
    published.load()
    Compaction(published.context(), every=True).run("clicks")
    table = table_of(published)
    for day, number in (("06", 1), ("03", 2)):
        found = table.scan(row_filter=f"at = '1970-01-{day}T00:00:00+00:00'").to_arrow()
        assert found["n"].to_pylist() == [number]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("publishing", marks=pytest.mark.minutes),
        "published",
        pytest.param("applied", marks=pytest.mark.minutes),
    ],
)
def test_killed_loaders_leave_snapshots_that_can_be_read(published: Published, step: str) -> None:
    world = published.world
    world.register("clicks", V1)
    jobs: dict[str, Callable[[Any], Any]] = {
        "load": lambda c: Load(c).run(),
        "compact": lambda c: Compaction(c, min_small_files=2).run(),
        "rewind": lambda c: Rewind(c).run("clicks", RewindPosition.parse("earliest")),
        "erase": lambda c: Erase(c).run(EraseCondition.parse("n = 0")),
    }
    left = set()
    for n, (name, job) in enumerate(jobs.items()):
        left |= {2 * n, 2 * n + 1}
        click(world, 2 * n)
        published.load()
        click(world, 2 * n + 1)
        if name == "erase":
            left -= {0}
        with pytest.raises(Killed):
            job(published.context(on_step=killer(step)))
        assert set(numbers(published)) <= left | {0}
        published.load()
        assert numbers(published) == sorted(left)
    assert numbers(published, "duckdb") == sorted(left)


def test_replaced_files_go_after_their_snapshots(published: Published) -> None:
    world = published.world
    world.register("clicks", V1)
    for n in range(3):
        click(world, n)
        published.load()
    click(world, 3, schema=V2, schema_id=world.register("clicks", V2))
    published.load()
    before = {task.file.file_path for task in table_of(published).scan().plan_files()}
    Compaction(published.context(), min_small_files=2).run()
    snapshots = table_of(published).metadata.snapshots
    assert snapshots[-1].summary.operation.value == "replace"
    assert all(Path(uri.removeprefix("file://")).exists() for uri in before)
    published.load(now=lambda: 9000.0)
    assert not any(Path(uri.removeprefix("file://")).exists() for uri in before)
    assert [one.summary["headworks.kind"] for one in table_of(published).metadata.snapshots] == [
        "compact"
    ]
    assert numbers(published, "duckdb") == [0, 1, 2, 3]
    assert [row["how"] for row in iceberg.duckdb_rows(table_of(published))] == [
        *["mouse"] * 3,
        "touch",
    ]
