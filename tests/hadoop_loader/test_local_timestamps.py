"""Local timestamps in files: in no time zone, and in UTC in tables of earlier releases."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hadoop_loader._commit import topic_plans
from hadoop_loader._commit.table_history import field_ids_after
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._spark.rows import check_columns
from hadoop_loader._storage.filesystem import parquet_source, sorted_glob
from hadoop_loader._tables.columns import LOCAL_TIMESTAMP, TIMESTAMP, StructColumn, StructField
from hadoop_loader._tables.field_ids import NO_FIELD_IDS, FieldIds, field_ids, stored_columns
from headworks.errors import IncompatibleError
from headworks.schema import Record, parse
from tests.hadoop_loader.memory import World, encoded

pytestmark = pytest.mark.unit

LOCAL: Any = {"type": "long", "logicalType": "local-timestamp-micros"}
INSTANT: Any = {"type": "long", "logicalType": "timestamp-micros"}
PLACE: Any = {"type": "record", "name": "Place", "fields": [{"name": "open", "type": LOCAL}]}
V1: Any = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "came", "type": LOCAL},
        {"name": "place", "type": ["null", PLACE], "default": None},
        {"name": "stops", "type": {"type": "array", "items": LOCAL}},
        {"name": "marks", "type": {"type": "map", "values": ["null", LOCAL]}},
    ],
}
LEFT: Any = {"name": "left", "type": LOCAL, "default": 0}
V2: Any = {**V1, "fields": [*V1["fields"], LEFT]}
NOON = datetime.fromisoformat("2026-03-08T02:30:00.123456")  # New York's clocks skip it
NAIVE, IN_UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


def visit(world: World, n: int, schema: Any, schema_id: int) -> None:
    value = {"n": n, "came": NOON, "place": {"open": NOON}, "stops": [NOON], "marks": {"a": NOON}}
    world.log.append("visits", encoded(schema, {**value, "left": NOON}, schema_id))


def file_types(world: World) -> list[dict[str, Any]]:
    """The types of all local timestamps in each file of the table, which is read by nobody else."""
    (table,) = {s.files_table for s in world.context().log.latest().tables.values()}  # type: ignore[union-attr]
    found = []
    for path in sorted_glob(world.root / table, "**/*.parquet"):
        schema = pq.read_schema(parquet_source(path))
        types = {name: schema.field(name).type for name in schema.names}
        one = {"came": types["came"], "place": types["place"].field("open").type}
        one |= {"stops": types["stops"].value_type, "marks": types["marks"].item_type}
        found.append(one | ({"left": types["left"]} if "left" in types else {}))
    return found


def assert_each_is_noon(world: World, rows: int) -> None:
    found = world.rows(next(iter(world.context().log.latest().tables.values())).files_table)  # type: ignore[union-attr]
    assert len(found) == rows
    for row in found:
        marks = dict(row["marks"])
        times = [row["came"], row["place"]["open"], *row["stops"], marks["a"]]
        assert {time.replace(tzinfo=None) for time in times} == {NOON}


def all_in_utc(*given: Any) -> FieldIds:
    """Field ids as an earlier release gives them."""
    return replace(field_ids_after(*given), local=frozenset())


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Loads plan as an earlier release did, until it is undone."""
    monkeypatch.setattr(topic_plans, "field_ids_after", all_in_utc)
    return monkeypatch


def test_a_new_table_has_local_timestamps_in_no_time_zone(world: World) -> None:
    world.register("visits", V1)
    visit(world, 0, V1, 1)
    Load(world.context()).run()
    world.register("visits", V2)
    visit(world, 1, V2, 2)
    Load(world.context()).run()
    first, second = file_types(world)
    assert set(first.values()) == set(second.values()) == {NAIVE}
    assert_each_is_noon(world, 2)
    Compaction(world.context(), min_small_files=2, every=True).run()
    assert {row["left"] for row in world.rows("visits")} == {
        NOON,
        datetime.fromisoformat("1970-01-01"),
    }
    assert all(set(types.values()) == {NAIVE} for types in file_types(world))


@pytest.mark.parametrize("way", ["compact", "rewind"])
def test_a_table_of_an_earlier_release_keeps_one_form_for_each_column(
    world: World, earlier: pytest.MonkeyPatch, way: str
) -> None:
    world.register("visits", V1)
    visit(world, 0, V1, 1)
    Load(world.context()).run()
    earlier.undo()
    visit(world, 1, V1, 1)
    Load(world.context()).run()
    world.register("visits", V2)
    visit(world, 2, V2, 2)
    Load(world.context()).run()
    if way == "compact":
        Compaction(world.context(), min_small_files=2, every=True).run()
    else:
        Rewind(world.context()).run("visits", RewindPosition.parse("1"))
    for types in file_types(world):
        assert types.pop("left", NAIVE) == NAIVE, "a field that the old files do not have"
        assert set(types.values()) == {IN_UTC}
    assert_each_is_noon(world, 3)


def test_a_rebuild_leaves_nothing_in_utc(world: World, earlier: pytest.MonkeyPatch) -> None:
    world.register("visits", V1)
    visit(world, 0, V1, 1)
    Load(world.context()).run()
    assert [set(types.values()) for types in file_types(world)] == [{IN_UTC}]
    earlier.undo()
    Rebuild(world.context()).run("visits")
    visit(world, 1, V1, 1)
    Load(world.context()).run()
    assert [set(types.values()) for types in file_types(world)] == [{NAIVE}] * 2
    assert_each_is_noon(world, 2)


def test_tables_without_field_ids_have_all_in_utc(world: World) -> None:
    world.register("visits", V1)
    visit(world, 0, V1, 1)
    Load(world.context()).run()
    log = world.context().log
    state = log.latest().tables["visits"]  # type: ignore[union-attr]
    assert FieldIds.parse(log.field_ids.get(state.field_ids)).local
    ids = field_ids_after(replace(state, field_ids=""), json.dumps(V2), log)
    assert ids.local == {ids.paths["left"]}


def test_a_time_that_becomes_a_local_one_is_another_field() -> None:
    def of(type_: Any) -> Any:
        fields = [{"name": "at", "type": type_}]
        return parse(json.dumps({"type": "record", "name": "R", "fields": fields}))

    before = field_ids(NO_FIELD_IDS, None, of(INSTANT))
    after = field_ids(before, of(INSTANT), of(LOCAL))
    assert after.paths["at"] != before.paths["at"]
    assert not before.local
    assert after.local == {after.paths["at"]}
    assert FieldIds.parse(after.text) == after
    column = StructField("at", LOCAL_TIMESTAMP)
    known = FieldIds(9, {"at": 3})
    assert [c.type.local for c in stored_columns([column], known)] == [False]  # type: ignore[union-attr]
    assert stored_columns([column], NO_FIELD_IDS) == (column,)


def test_a_dataframe_has_a_local_timestamp_only_for_a_local_field() -> None:
    fields = [{"name": "at", "type": INSTANT}, {"name": "came", "type": LOCAL}]
    schema = parse(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert isinstance(schema, Record)

    def check(at: Any, came: Any) -> None:
        check_columns(StructColumn((StructField("at", at), StructField("came", came))), schema)

    check(TIMESTAMP, LOCAL_TIMESTAMP)
    check(TIMESTAMP, TIMESTAMP)  # its wall clock in the session's time zone, as a cast has it
    with pytest.raises(
        IncompatibleError, match=r"at is timestamp_ntz, .* wants timestamp\n"
    ) as told:
        check(LOCAL_TIMESTAMP, LOCAL_TIMESTAMP)
    assert told.value.fix is not None
    assert 'cast("timestamp")' in told.value.fix
