"""Rewritten files are in the latest schema: old rows are plain columns, with their defaults."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from hadoop_loader._commit.commit_record import Commit, TableState, _checksum, checksum, decode
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._operations.verify import count_rows
from hadoop_loader._storage.failpoints import STEPS
from hadoop_loader._storage.filesystem import parquet_source, sorted_glob
from hadoop_loader._tables.columns import ddl
from headworks.errors import UsageError
from tests.evolution import value_of
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_decode import same
from tests.hadoop_loader.test_loading import DAY, V1, V2, Killed, click, killer, numbers
from tests.hadoop_loader.test_views import chain, resolved

pytestmark = pytest.mark.unit

Json = Any
RENAMED: Json = {
    **V1,
    "fields": [
        V1["fields"][0],
        {"name": "count", "type": "long", "aliases": ["n"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["a"]},
        {"name": "prefs", "type": {"type": "map", "values": "int"}, "default": {"k": 1}},
    ],
}


def schemas(world: World, table: str) -> list[Any]:
    """The schemas of the files that readers are sent to."""
    return [
        pq.ParquetFile(parquet_source(file)).schema_arrow
        for folder in world.catalog.days[table].values()
        for file in sorted_glob(folder, "[!._]*")
    ]


def ids(schema: Any) -> dict[str, str]:
    """The field ids of a file's columns and what is in them."""
    found: dict[str, str] = {}

    def walk(field: Any, path: str) -> None:
        metadata = field.metadata or {}
        if b"PARQUET:field_id" in metadata:
            found[path] = metadata[b"PARQUET:field_id"].decode()
        for i in range(field.type.num_fields):
            inner = field.type.field(i)
            walk(inner, f"{path}.{inner.name}")

    for field in schema:
        walk(field, field.name)
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("way", ["compact", "rewind", "rebuild"])
def test_every_rewrite_gives_rows_as_avro_resolves_them(world: World, way: str, seed: int) -> None:
    rng, versions = random.Random(seed), chain(3000 + seed)
    written: list[tuple[Json, bytes]] = []
    for schema in versions:
        schema_id = world.register("t", schema)
        for _ in range(4):
            data = encoded(schema, value_of(schema, rng), schema_id)
            world.log.append("t", data)
            written.append((schema, data[5:]))
        assert not Load(world.context()).run().refused
    table = "t"
    if way == "compact":
        Compaction(world.context(), min_small_files=2).run()  # merges, and forgets no schema
        assert len(_last(world).tables["t"].projections) == len(versions)
        Compaction(world.context(), min_small_files=99, every=True).run()
    elif way == "rewind":
        Rewind(world.context()).run("t", RewindPosition.parse("2"))
    else:
        Rebuild(world.context()).run("t")
        (table,) = world.catalog.days.keys() - {"t"}
    names = [f["name"] for f in versions[-1]["fields"]]
    rows = sorted(world.rows(table), key=lambda row: row["_offset"])
    expected = [resolved(data, old, versions[-1]) for old, data in written]
    for row, wanted in zip(rows, expected, strict=True):
        assert same({name: row[name] for name in names}, wanted)
    first, *others = schemas(world, table)
    assert all(other == first for other in others)
    assert ids(first)
    if way == "compact" and isinstance(world.root, Path):  # what a reader of the folder sees
        Load(world.context(grace=0.0, now=lambda: 99.0)).run()
        read = dataset.dataset(str(world.root / "t"), format="parquet").to_table()
        for row, wanted in zip(read.sort_by("_offset").to_pylist(), expected, strict=True):
            assert same({name: row[name] for name in names}, wanted)
    if way != "rewind":
        assert " CASE " not in world.catalog.views["t"]
    assert count_rows(world.root)[0].in_files == 12


def test_ids_follow_fields_through_renames_and_are_given_once(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0)
    Load(world.context()).run()
    (before,) = schemas(world, "clicks")
    world.register("clicks", RENAMED)
    value: Json = {"at": DAY, "count": 1, "tags": [], "prefs": {}}
    world.log.append("clicks", encoded(RENAMED, value, 2), DAY)
    Load(world.context()).run()
    old, new = ids(before), ids(schemas(world, "clicks")[-1])
    assert new["count"] == old["n"]
    assert {name: new[name] for name in ("at", "_offset", "_written")} == {
        name: old[name] for name in ("at", "_offset", "_written")
    }
    assert len({*new.values()}) == len(new)
    assert not {new["tags"], new["tags.element"]} & {*old.values()}
    assert {"prefs.entries.key", "prefs.entries.value"} <= {
        path.replace("prefs.prefs", "prefs.entries") for path in new
    }


def test_a_renamed_column_reads_the_same_before_and_after_a_rewrite(world: World) -> None:
    """The view of a table with some rewritten files asks each row in which schema it is."""
    world.register("clicks", V1)
    click(world, 0, at=0)
    click(world, 1, at=DAY)
    Load(world.context()).run()
    world.register("clicks", RENAMED)
    Load(world.context()).run()
    text = world.catalog.views["clicks"]
    assert "CASE WHEN coalesce(`_written`, `_load`) < 2 THEN CAST(`n` AS bigint) ELSE" in text
    Compaction(world.context(), min_small_files=1).run_after(_commit(world, 1))
    assert world.catalog.views["clicks"] == text
    rows = sorted(world.rows("clicks"), key=lambda row: row["_offset"])
    assert [(r["count"], r["tags"], r["prefs"]) for r in rows] == [
        (0, ["a"], [("k", 1)]),
        (1, ["a"], [("k", 1)]),
    ]
    assert all("n" not in r for r in rows)
    assert {(r["_load"], r["_written"]) for r in rows} == {(1, 3)}
    with pytest.raises(UsageError, match="topic clikcs has no table"):
        Compaction(world.context(), min_small_files=2, every=True).run("clikcs")
    done = Compaction(world.context(), min_small_files=2, every=True).run("clicks")
    assert (done.partitions, done.settled) == (0, 1)
    assert "CASE" not in world.catalog.views["clicks"]


def _commit(world: World, number: int) -> Commit:
    """The last commit, with the files of an earlier one."""
    return replace(_last(world), files=world.context().log.read(number).files)


def _last(world: World) -> Commit:
    last = world.context().log.latest()
    assert last is not None
    return last


@pytest.mark.parametrize("step", STEPS)
def test_a_table_that_is_killed_while_it_settles_has_every_row(world: World, step: str) -> None:
    world.register("clicks", V1)
    for n in range(6):
        click(world, n, at=n % 2 * DAY)
    Load(world.context()).run()
    world.register("clicks", V2)
    Load(world.context()).run()
    try:
        Compaction(world.context(on_step=killer(step)), every=True).run()
    except Killed:
        Load(world.context()).run()
    Compaction(world.context(), every=True).run()
    assert numbers(world) == list(range(6))
    assert {row["how"] for row in world.rows("clicks")} == {"mouse"}
    assert "CASE" not in world.catalog.views["clicks"]


def test_a_file_that_cannot_be_read_leaves_its_partition_as_it_is(world: World) -> None:
    world.register("clicks", V1)
    for n in range(4):
        click(world, n, at=n % 2 * DAY)
        Load(world.context()).run()
    world.register("clicks", V2)
    Load(world.context()).run()
    bad = Path(str(sorted_glob(world.root / "clicks/datepartition=1970-01-01", "*.parquet")[0]))
    content = bad.read_bytes()
    bad.write_bytes(content[:-30] + b"x" * 30)
    done = Compaction(world.context(), min_small_files=2, every=True).run()
    assert (done.partitions, done.settled) == (1, 0)
    (problem,) = done.refused
    assert problem.topic == "clicks"
    assert f"partition 1970-01-01 stays as it was: {bad} cannot be read" in problem.reason
    bad.write_bytes(content)
    done = Compaction(world.context(), min_small_files=2, every=True).run()
    assert (done.partitions, done.settled, done.refused) == (1, 1, ())
    assert numbers(world) == list(range(4))


def test_a_table_of_an_earlier_release_gets_ids_with_the_next_load(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0)
    Load(world.context()).run()
    file = world.root / "_headworks/commits/00000001.json"
    record = json.loads(file.read_text())
    del record["commit"]["tables"]["clicks"]["field_ids"]
    assert "settled_tables" not in record["commit"]
    record["checksum"] = _checksum(record["commit"])
    file.write_text(json.dumps(record))
    commit = decode(file.read_text(), 1, file)
    assert checksum(commit) == record["checksum"], "a chain of earlier releases is whole"
    assert commit.tables["clicks"] == TableState(
        **{**record["commit"]["tables"]["clicks"], "field_ids": ""}
    )
    click(world, 1)
    assert Load(world.context()).run().rows == 1
    assert "CASE" not in world.catalog.views["clicks"]
    Compaction(world.context(), min_small_files=2).run()
    (schema,) = schemas(world, "clicks")
    assert ids(schema)["n"]
    assert numbers(world) == [0, 1]


def test_a_member_that_was_dropped_leaves_the_table_with_the_last_old_file(world: World) -> None:
    def version(*members: str) -> Json:
        fields = [{"name": name, "type": "string"} for name in members]
        inner = {"type": "record", "name": "W", "fields": fields}
        return {**V1, "fields": [{"name": "who", "type": inner}]}

    for members in (("a", "b"), ("a",)):
        schema = {key: value for key, value in version(*members).items() if key != "headworks"}
        schema_id = world.register("t", schema)
        value = {"who": dict.fromkeys(members, "x")}
        world.log.append("t", encoded(schema, value, schema_id))
        Load(world.context()).run()
    who = next(c for c in world.catalog.columns["t"] if c.name == "who")
    assert ddl(who.type) == "struct<`a`:string,`b`:string>"
    Compaction(world.context(), every=True).run()
    who = next(c for c in world.catalog.columns["t"] if c.name == "who")
    # The view selects the column as it is, so that the types must agree.
    assert ddl(who.type) == "struct<`a`:string>"
