"""Filters on the event time: all rows that they keep, read from the partitions of their days."""

from __future__ import annotations

import copy
import datetime as dt
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit import topic_plans
from hadoop_loader._commit.commit_record import SEVERAL_TIMES, TableState
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._spark.sql import connect
from hadoop_loader._tables.hive_catalog import HiveCatalog
from tests.hadoop_loader.memory import World, encoded

pytestmark = pytest.mark.unit

Json = Any
UTC = dt.UTC
DAY = dt.timedelta(days=1)
FIRST, LAST = dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
MIDNIGHT = dt.datetime(2026, 5, 3, tzinfo=UTC)
BOUNDS = re.compile(r"\(datepartition#\d+ (>=|<) (\d{4}-\d\d-\d\d)\)")


def time_field(name: str, **more: Json) -> Json:
    return {"name": name, "type": {"type": "long", "logicalType": "timestamp-micros"}, **more}


def schema(event_time: str | None, *fields: Json) -> Json:
    governed = {} if event_time is None else {"headworks": {"event_time": event_time}}
    return {"type": "record", "name": "Seen", "fields": [*fields], **governed}


FLAT = schema("at", time_field("at"), {"name": "n", "type": "int"})
META = {"type": "record", "name": "Meta", "fields": [time_field("sentAt")]}
NESTED = schema("meta.sentAt", {"name": "meta", "type": META}, {"name": "n", "type": "int"})


def micros(at: dt.datetime) -> int:
    return (at - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(microseconds=1)


def times(rng: random.Random) -> list[dt.datetime]:
    """Times around midnights of a fortnight, and the ends of the calendar."""
    edges = [MIDNIGHT + n * DAY for n in range(14)]
    near = [dt.timedelta(microseconds=n) for n in (-1, 0, 1)]
    spread = [MIDNIGHT + rng.random() * 14 * DAY for _ in range(40)]
    return [edge + by for edge in edges for by in near] + spread + [FIRST, LAST]


class Server:
    """A warehouse of generated rows, and a HiveServer2 that reads it."""

    def __init__(self, spark: Any, hive: str, root: Path) -> None:
        catalog: Any = HiveCatalog(spark, "pruning_files", "pruning")
        catalog.prepare(root)
        self.world, self.spark, self.hive = World(root / "warehouse", catalog=catalog), spark, hive

    def load(self, topic: str, of: Json, rows: list[Json], **policy: Any) -> None:
        number = self.world.register(topic, of)
        for row in rows:
            self.world.log.append(topic, encoded(of, row, number))
        report = Load(self.world.context(**policy)).run()
        assert not report.refused
        assert sum(t.quarantined for t in report.topics) == 0

    def ask(self, *statements: str) -> list[Any]:
        """Send statements over one connection; return the rows of the last."""
        with connect(self.hive) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def bounds(self, query: str, *settings: str) -> set[tuple[str, str]]:
        """The bounds of `datepartition` by which a query chooses partitions."""
        plan = "\n".join(row[0] for row in self.ask(*settings, f"EXPLAIN EXTENDED {query}"))
        found = re.search(r"PartitionFilters: \[([^\]]*)\]", plan.partition("Physical Plan")[2])
        assert found is not None, plan
        return set(BOUNDS.findall(found[1]))


@pytest.fixture(scope="module")
def server(spark: Any, hive: str, tmp_path_factory: pytest.TempPathFactory) -> Server:
    server = Server(spark, hive, tmp_path_factory.mktemp("pruning"))
    found = times(random.Random(1))
    flat = [{"at": micros(at), "n": n} for n, at in enumerate(found)]
    nested = [{"meta": {"sentAt": micros(at)}, "n": n} for n, at in enumerate(found)]
    server.load("daily", FLAT, flat)
    server.load("hourly", FLAT, flat, partitions="hourly")
    server.load("nested", NESTED, nested)
    return server


def literal(at: dt.datetime) -> str:
    return f"TIMESTAMP'{at.replace(tzinfo=None).isoformat(sep=' ')}Z'".replace("'1-", "'0001-")


Condition = tuple[str, Callable[[dt.datetime], bool]]


def conditions(rng: random.Random, column: str) -> Iterator[Condition]:
    """Conditions in SQL, and the same in Python."""
    drawn = times(rng)
    while True:
        a, b = rng.choice(drawn), rng.choice(drawn)
        few = rng.sample(drawn, 3)
        listed = ", ".join(["CAST(NULL AS TIMESTAMP)", *map(literal, few)])
        yield f"{column} >= {literal(a)}", lambda at, a=a: at >= a  # type: ignore[misc]
        yield f"{column} > {literal(a)}", lambda at, a=a: at > a  # type: ignore[misc]
        yield f"{literal(a)} >= {column}", lambda at, a=a: a >= at  # type: ignore[misc]
        yield f"{column} < {literal(a)}", lambda at, a=a: at < a  # type: ignore[misc]
        yield f"{column} = {literal(a)}", lambda at, a=a: at == a  # type: ignore[misc]
        yield f"{column} <=> {literal(a)}", lambda at, a=a: at == a  # type: ignore[misc]
        yield (
            f"{column} BETWEEN {literal(a)} AND {literal(b)}",
            lambda at, a=a, b=b: a <= at <= b,  # type: ignore[misc]
        )
        yield f"{column} IN ({listed})", lambda at, few=few: at in few  # type: ignore[misc]
        yield f"NOT ({column} > {literal(a)})", lambda at, a=a: at <= a  # type: ignore[misc]
        yield (
            f"({column} > {literal(a)} OR n = 3)",
            lambda at, a=a: at > a or at == drawn[3],  # type: ignore[misc]
        )
        day = a.date()
        yield f"date({column}) = DATE'{day}'", lambda at, day=day: at.date() == day  # type: ignore[misc]
        yield f"to_date({column}) < DATE'{day}'", lambda at, day=day: at.date() < day  # type: ignore[misc]


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize(
    ("table", "column"), [("daily", "at"), ("hourly", "at"), ("nested", "meta.sentAt")]
)
def test_no_row_is_missed(server: Server, table: str, column: str) -> None:
    held = times(random.Random(1))
    drawn = conditions(random.Random(2), column)
    with connect(server.hive) as connection:
        cursor = connection.cursor()
        for _ in range(12):
            (first, is_first), (second, is_second) = next(drawn), next(drawn)
            if "n = 3" in first + second:
                continue
            cursor.execute(f"SELECT n FROM pruning.{table} WHERE {first} AND {second}")
            expected = [n for n, at in enumerate(held) if is_first(at) and is_second(at)]
            assert sorted(n for (n,) in cursor.fetchall()) == expected, (first, second)


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("at >= '2026-05-03'", {(">=", "2026-05-03")}),
        ("at < '2026-05-04 00:00:00'", {("<", "2026-05-05")}),
        ("'2026-05-03 12:00:00' < at AND n > 1", {(">=", "2026-05-03")}),
        ("at BETWEEN '2026-05-03' AND '2026-05-05'", {(">=", "2026-05-03"), ("<", "2026-05-06")}),
        ("date(at) = '2026-05-03'", {(">=", "2026-05-03"), ("<", "2026-05-05")}),
        (
            "at IN (TIMESTAMP'2026-05-03 01:00:00', TIMESTAMP'2026-05-07 01:00:00')",
            {(">=", "2026-05-03"), ("<", "2026-05-08")},
        ),
        ("at > '2026-05-03' OR n = 1", set()),
        ("n = 1", set()),
        ("_timestamp > '2026-05-03'", set()),
    ],
)
def test_the_partitions_of_its_days_are_read(
    server: Server, condition: str, expected: set[tuple[str, str]]
) -> None:
    assert server.bounds(f"SELECT * FROM pruning.daily WHERE {condition}") == expected
    assert server.bounds(f"SELECT * FROM pruning.hourly WHERE {condition}") == expected


@pytest.mark.e2e
@pytest.mark.spark
def test_a_nested_event_time_prunes_too(server: Server) -> None:
    query = "SELECT n FROM pruning.nested WHERE meta.sentAt >= '2026-05-03'"
    assert server.bounds(query) == {(">=", "2026-05-03")}


@pytest.mark.e2e
@pytest.mark.spark
def test_dates_of_another_time_zone_have_a_margin(server: Server) -> None:
    zone = "SET spark.sql.session.timeZone=Asia/Kolkata"
    held = times(random.Random(1))
    offset = dt.timezone(dt.timedelta(hours=5, minutes=30))
    for day in (dt.date(2026, 5, 4), dt.date(2026, 5, 10)):
        query = f"SELECT n FROM pruning.daily WHERE date(at) = DATE'{day}'"
        expected = [n for n, at in enumerate(held[:-2]) if at.astimezone(offset).date() == day]
        assert expected
        assert sorted(n for (n,) in server.ask(zone, query)) == expected
        before, after = str(day - DAY), str(day + 2 * DAY)
        assert server.bounds(query, zone) <= {(">=", before), ("<", after), ("<", str(day + DAY))}


@pytest.mark.e2e
@pytest.mark.spark
def test_a_topic_without_event_time_is_pruned_by_the_time_of_its_records(server: Server) -> None:
    plain = schema(None, {"name": "n", "type": "int"})
    server.load("plain", plain, [{"n": 1}])
    ((at,),) = server.ask("SELECT _timestamp FROM pruning.plain")
    query = f"SELECT n FROM pruning.plain WHERE _timestamp >= '{at}'"
    assert server.ask(query) == [(1,)]
    assert server.bounds(query) == {(">=", str(at.date()))}


@pytest.mark.e2e
@pytest.mark.spark
def test_a_change_of_the_event_time_ends_it_at_once(server: Server) -> None:
    """Rows of the first event time stay in its partitions, also when all are in one schema."""
    both = (time_field("at"), time_field("seen"), {"name": "n", "type": "int"})
    long_ago = micros(MIDNIGHT - 30 * DAY)
    row = {"at": long_ago, "seen": micros(MIDNIGHT), "n": 1}
    query = "SELECT n FROM pruning.moved WHERE seen >= '2026-05-03'"
    server.load("moved", schema("at", *both), [row])
    assert server.ask(query) == [(1,)]
    early = "SELECT n FROM pruning.moved WHERE at < '2026-04-10'"
    assert server.bounds(early) == {("<", "2026-04-11")}
    with connect(server.hive) as connection:  # it keeps the table as it was
        cursor = connection.cursor()
        cursor.execute(early)
        server.load("moved", schema("seen", *both), [row | {"n": 2}])
        for _ in range(2):
            cursor.execute(query)
            assert sorted(cursor.fetchall()) == [(1,), (2,)]
            cursor.execute(early)
            assert sorted(cursor.fetchall()) == [(1,), (2,)]
            Compaction(server.world.context(), every=True).run()


class Moved:
    """A topic whose schema changes, and its table's state after each load."""

    def __init__(self, world: World) -> None:
        self.world = world

    def load(self, of: Json, *, missing: int | None = None) -> str:
        """Load a row of a new version, when an earlier one is `missing` from the registry."""
        number = self.world.register("moved", of)
        if missing is not None:
            del self.world.subjects["moved"][missing]
        self.world.log.append("moved", encoded(of, {"at": 0, "seen": 1}, number))
        Load(self.world.context()).run()
        told = self.world.catalog.properties["moved"].get("headworks.partition_time", "")
        assert told == self.state.partition_time.partition(" ")[0]
        return told

    @property
    def state(self) -> TableState:
        last = self.world.context().log.latest()
        assert last is not None
        return last.tables["moved"]


BOTH = (time_field("at"), time_field("seen"))
MORE = {"name": "n", "type": "int", "default": 0}


def test_a_table_knows_from_which_column_its_partitions_come(world: World) -> None:
    topic = Moved(world)
    assert topic.load(schema("at", *BOTH)) == "at"
    assert topic.load(schema("at", *BOTH, MORE)) == "at"
    assert topic.load(schema("seen", *BOTH, MORE)) == SEVERAL_TIMES
    assert topic.load(schema("seen", *BOTH)) == SEVERAL_TIMES
    assert topic.load(schema("at", *BOTH, MORE)) == SEVERAL_TIMES


def test_another_logical_type_of_the_event_time_is_another_column(world: World) -> None:
    """A rebuild takes milliseconds for microseconds, as Avro does, and moves no row."""
    topic = Moved(world)
    millis, micros = copy.deepcopy(BOTH), BOTH
    millis[0]["type"]["logicalType"] = "timestamp-millis"
    assert topic.load(schema("at", *millis)) == "at"
    assert topic.load(schema("at", *micros)) == SEVERAL_TIMES


@pytest.mark.parametrize(
    ("times", "missing", "expected"),
    [
        (("at", "at", "at"), None, "at"),
        (("seen", "at", "at"), None, SEVERAL_TIMES),
        (("seen", "at", "at"), 0, SEVERAL_TIMES),
        (("at", "at", "at"), 0, SEVERAL_TIMES),
    ],
)
def test_a_table_of_an_earlier_release(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    times: tuple[str, ...],
    missing: int | None,
    expected: str,
) -> None:
    """It has a column if the registry still has all versions, and they agree."""
    first, second, third = (schema(time, *BOTH, {**MORE, "doc": time}) for time in times)
    third["fields"][-1]["doc"] = "newer"
    topic = Moved(world)
    with monkeypatch.context() as earlier:
        earlier.setattr(topic_plans, "_partition_time", lambda *_: "")
        assert [topic.load(first), topic.load(second)] == ["", ""]
        Compaction(world.context(), every=True).run()
    assert topic.load(third, missing=missing) == expected


def test_a_version_of_an_earlier_release_that_nobody_could_load(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Moved(world)
    with monkeypatch.context() as earlier:
        earlier.setattr(topic_plans, "_partition_time", lambda *_: "")
        topic.load(schema("at", *BOTH))
    world.register("moved", schema("gone", *BOTH))
    assert topic.load(schema("at", *BOTH, MORE)) == SEVERAL_TIMES
