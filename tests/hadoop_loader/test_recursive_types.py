"""Recursive types: JSON text from the recursion on, in a table like any other."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import random
from collections.abc import Collection
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from hadoop_loader._commit.registry_subjects import SchemaLookup
from hadoop_loader._commit.report import LoadReport
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._decode.recursive_types import FlatDatums, flat_schema
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from hadoop_loader._operations.rewind import Requeue, Rewind
from hadoop_loader._tasks.load_task import WriterSchema
from headworks._decoding.generated_decoder import DATUM_ERRORS
from tests.hadoop_loader.memory import World, encoded

pytestmark = pytest.mark.unit

AT: Any = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
NODE: Any = {
    "type": "record",
    "name": "Node",
    "namespace": "tree",
    "headworks": {"event_time": "at"},
    "fields": [
        AT,
        {"name": "raw", "type": "bytes", "default": "z"},
        {"name": "next", "type": ["null", "Node"], "default": None},
        {"name": "many", "type": {"type": "array", "items": "tree.Node"}, "default": []},
        {"name": "named", "type": {"type": "map", "values": ["int", "Node"]}, "default": {}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}
MUTUAL: Any = {
    "type": "record",
    "name": "A",
    "fields": [
        {
            "name": "b",
            "type": {
                "type": "record",
                "name": "B",
                "fields": [{"name": "n", "type": "double"}, {"name": "a", "type": ["null", "A"]}],
            },
        },
        {"name": "again", "type": {"type": "array", "items": "B"}},
    ],
}


def node(rng: random.Random, depth: int = 0) -> Any:
    below = [] if depth > 2 else [node(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {
        "at": rng.randrange(10**12),
        "raw": rng.randbytes(rng.randrange(200)),
        "next": below.pop() if below and rng.random() < 0.5 else None,
        "many": below,
        "named": {"ü": rng.randrange(9), **({"x": node(rng, 3)} if depth < 2 else {})},
        "kind": rng.choice("AB"),
    }


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def without_logical(schema: Any) -> Any:
    """The schema with numbers in place of times, for fastavro."""
    text = json.dumps(schema).replace('"logicalType": "timestamp-millis"', '"x": 0')
    return json.loads(text)


def flat(world: World) -> Any:
    """The lookup of a loader with `recursive_types = json`."""

    def versions(topics: Collection[str]) -> dict[str, SchemaLookup]:
        return {t: tuple(map(_flat, world.subjects.get(t, ()))) for t in topics}

    return versions


def _flat(one: WriterSchema) -> WriterSchema:
    text = flat_schema(one.text)
    return WriterSchema(one.schema_id, one.version, text or one.text, one.text if text else "")


def load(world: World) -> LoadReport:
    return Load(world.context(versions=flat(world))).run()


def test_the_flat_schema_differs_at_the_recursion_alone() -> None:
    text = flat_schema(json.dumps(NODE))
    assert text is not None
    found = json.loads(text)
    assert found["fields"][2]["type"] == ["null", "string"]
    assert found["fields"][3]["type"] == {"type": "array", "items": "string"}
    assert found["fields"][4]["type"] == {"type": "map", "values": ["int", "string"]}
    assert [found["fields"][i] for i in (0, 1, 5)] == [NODE["fields"][i] for i in (0, 1, 5)]
    mutual = json.loads(flat_schema(json.dumps(MUTUAL)) or "")
    assert mutual["fields"][0]["type"]["fields"][1]["type"] == ["null", "string"]
    assert mutual["fields"][1]["type"] == {"type": "array", "items": "B"}


def test_a_schema_without_recursion_or_without_a_flat_form_has_none() -> None:
    assert flat_schema('"string"') is None
    twice = {"type": "record", "name": "T", "fields": [{"name": "t", "type": ["string", "T"]}]}
    assert flat_schema(json.dumps(twice)) is None
    default = {
        "type": "record",
        "name": "L",
        "fields": [
            {
                "name": "l",
                "type": {
                    "type": "record",
                    "name": "M",
                    "fields": [{"name": "m", "type": ["L", "null"], "default": {"l": 1}}],
                },
            }
        ],
    }
    inner = json.loads(flat_schema(json.dumps(default)) or "")["fields"][0]["type"]["fields"][0]
    assert inner == {"name": "m", "type": ["string", "null"], "default": '{"l": 1}'}


@pytest.mark.parametrize("schema", [NODE, MUTUAL], ids=["node", "mutual"])
def test_flat_datums_are_what_fastavro_reads(schema: Any) -> None:
    rng = random.Random(7)
    text = flat_schema(json.dumps(schema))
    assert text is not None
    written = parse_schema(without_logical(schema))
    read = parse_schema(without_logical(json.loads(text)))
    datums = FlatDatums(json.dumps(schema))
    for _ in range(50):
        value = node(rng) if schema is NODE else mutual(rng)
        out = io.BytesIO()
        schemaless_writer(out, written, value)
        found = schemaless_reader(
            io.BytesIO(datums.flatten(b"head." + out.getvalue(), 5)[5:]), read, None
        )
        assert as_json(found) == plain(value)


def mutual(rng: random.Random, depth: int = 0) -> Any:
    def b() -> Any:
        more = depth < 2 and rng.random() < 0.7
        return {"n": rng.random(), "a": mutual(rng, depth + 1) if more else None}

    return {"b": b(), "again": [b() for _ in range(rng.randrange(3))]}


def as_json(value: Any) -> Any:
    """A flat value with its texts read, as JSON values."""
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, str) and value.startswith("{"):
        return json.loads(value)
    return plain(value)


def test_a_recursive_topic_becomes_a_table(world: World) -> None:
    rng = random.Random(1)
    world.register("tree", NODE)
    values = [node(rng) for _ in range(40)]
    for value in values:
        world.log.append("tree", encoded(NODE, value))
    assert "contains itself" in Load(world.context()).run().refused[0].reason
    world.log.append("tree", encoded(NODE, values[0])[:-3])
    world.log.append("tree", encoded(NODE, values[0]) + b"!")
    report = load(world)
    assert (report.rows, report.topics[0].quarantined, report.refused) == (40, 2, ())
    rows = sorted(world.rows("tree"), key=lambda row: row["_offset"])
    for row, value in zip(rows, values, strict=True):
        assert row["raw"] == value["raw"]
        assert (row["next"] and json.loads(row["next"])) == plain(value["next"])
        assert [json.loads(one) for one in row["many"]] == plain(value["many"])
    bad = world.rows(QUARANTINE_TABLE)
    assert bad[0]["value"] == encoded(NODE, values[0])[:-3], "the bytes of the message stay"
    assert {one["reason"] for one in bad} == {
        "the datum ends too early",
        "1 bytes are left after the datum",
    }
    assert Requeue(world.context(versions=flat(world))).run("tree").rows == 0
    Rewind(world.context(versions=flat(world))).run("tree", RewindPosition.parse("earliest"))
    assert len(world.rows("tree")) == 40


def test_the_table_evolves_and_text_stays_as_it_was_written(world: World) -> None:
    world.register("tree", NODE)
    world.log.append(
        "tree", encoded(NODE, {**node(random.Random(2)), "next": node(random.Random(3), 3)})
    )
    load(world)
    (before,) = world.rows("tree")
    more = {**NODE, "fields": [*NODE["fields"], {"name": "more", "type": "int", "default": 7}]}
    new = {**node(random.Random(2)), "next": {**node(random.Random(3), 3), "more": 1}, "more": 2}
    world.log.append(
        "tree", encoded(more, {**new, "many": [], "named": {}}, world.register("tree", more))
    )
    assert load(world).rows == 1
    assert "THEN CAST('7' AS int) ELSE `more` END" in world.catalog.views["tree"]
    old, young = sorted(world.rows("tree"), key=lambda row: row["_offset"])
    assert (old["next"], json.loads(young["next"])["more"]) == (before["next"], 1)
    Rebuild(world.context(versions=flat(world))).run("tree")
    assert sorted(row["more"] for row in world.rows("tree__3")) == [2, 7]
    assert Load(world.context()).run().refused, "without the setting, nothing is loaded"
    assert load(world).refused == ()


def test_hostile_datums_end(world: World) -> None:
    """Depth, counts, and items that take no bytes."""
    deep = FlatDatums(json.dumps(MUTUAL))
    endless = bytes(8) + b"\x02"
    with pytest.raises(DATUM_ERRORS):
        deep.flatten(endless * 100_000, 0)
    empty = {
        "type": "record",
        "name": "E",
        "fields": [
            {"name": "e", "type": {"type": "array", "items": ["null", "E"]}},
            {"name": "n", "type": {"type": "array", "items": "null"}},
        ],
    }
    datums = FlatDatums(json.dumps(empty))
    many = b"\xfe\xff\xff\xff\x0f"  # 2**31 - 1 items
    nested = b"\x02\x02" + b"\x00" + many + b"\x00" + b"\x00\x00"
    with pytest.raises(DATUM_ERRORS, match="take no bytes"):
        datums.flatten(nested, 0)
    with pytest.raises(DATUM_ERRORS):
        datums.flatten(many + b"\x00", 0)
    rng = random.Random(5)
    for _ in range(3_000):
        with contextlib.suppress(*DATUM_ERRORS):
            datums.flatten(rng.randbytes(rng.randrange(60)), 0)


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; message A {}',
        '{"$ref": "#/x"}',
        '{"oneOf": []}',
        "true",
        '{"type": ["null", "object"], "properties": {}}',
    ],
)
def test_what_is_no_avro_schema_has_no_flat_one(text: str) -> None:
    """The plan refuses the topic of such a schema by name, and loads the others."""
    assert flat_schema(text) is None
