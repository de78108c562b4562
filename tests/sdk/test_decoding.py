"""Decoding across schemas: what Avro's resolution says, as objects, and nothing half-read."""

from __future__ import annotations

import io
import json
import random
from enum import Enum
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumer_sdk.compiled import DATUM_ERRORS, compiled
from headworks.schema import parse
from tests.evolution import as_column, evolution, value_of
from tests.sdk.packages import build

SLOW = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def as_table_value(found: Any) -> Any:
    """An object as the table value that tests.evolution.as_column gives for the same datum."""
    if hasattr(found, "__headworks__"):
        names = found.__headworks__.fields
        return {field: as_table_value(getattr(found, name)) for field, name in names.items()}
    if isinstance(found, Enum):
        return found.value
    if isinstance(found, list):
        return [as_table_value(item) for item in found]
    if isinstance(found, dict):
        return [(key, as_table_value(value)) for key, value in found.items()]
    return found


def decoder(folder: Path, writer: Any, reader: Any) -> Any:
    modules = build(folder, {"reader.avsc": json.dumps(reader)})
    name = reader["name"]
    (module,) = (m for m in modules.values() if hasattr(m, name))
    types = getattr(module, name).__headworks__.types
    return compiled(parse(json.dumps(writer)), parse(json.dumps(reader)), types)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@SLOW
@given(seed=st.integers(0, 2**32))
def test_evolved_data_comes_as_fastavro_resolves_it(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer, reader = evolution(chance)
    decode = decoder(tmp_path, writer, reader)
    for _ in range(4):
        data = written(writer, value_of(writer, chance))
        expected = fastavro.schemaless_reader(
            io.BytesIO(data), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        )
        assert as_table_value(decode(b"12345" + data, 5)) == as_column(reader, expected)


@SLOW
@given(seed=st.integers(0, 2**32))
def test_damaged_data_is_refused_or_read_but_never_hangs(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer, reader = evolution(chance)
    decode = decoder(tmp_path, writer, reader)
    data = written(writer, value_of(writer, chance))
    for _ in range(20):
        damaged = bytearray(data or b"\x00")
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        for bad in (bytes(damaged), bytes(damaged[: chance.randrange(len(damaged) + 1)])):
            try:
                decode(bad, 0)
            except DATUM_ERRORS:
                continue
    with pytest.raises(DATUM_ERRORS):
        decode(data + b"\x00", 0)


TREE = {
    "type": "record",
    "name": "Tree",
    "namespace": "wood",
    "fields": [
        {"name": "label", "type": "string"},
        {"name": "kids", "type": {"type": "array", "items": "Tree"}},
        {"name": "by", "type": {"type": "map", "values": ["null", "Tree"]}, "default": {}},
    ],
}


def test_records_that_hold_themselves(tmp_path: Path) -> None:
    evolved = json.loads(json.dumps(TREE))
    evolved["fields"].append({"name": "age", "type": "int", "default": 3})
    decode = decoder(tmp_path, TREE, evolved)
    leaf = {"label": "leaf", "kids": [], "by": {}}
    data = written(TREE, {"label": "root", "kids": [leaf, leaf], "by": {"n": None, "l": leaf}})
    tree = decode(data, 0)
    assert [kid.label for kid in tree.kids] == ["leaf", "leaf"]
    assert (tree.age, tree.by["n"], tree.by["l"].age) == (3, None, 3)
    deep = b"\x02a\x02" * 100_000
    with pytest.raises(RecursionError):
        decode(deep, 0)


def test_a_default_that_can_be_changed_is_every_events_own(tmp_path: Path) -> None:
    writer = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x"]}
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int", "default": 1}]}
    place = {"name": "place", "type": inner, "default": {}}
    reader = {**writer, "fields": [*writer["fields"], tags, place]}
    decode = decoder(tmp_path, writer, reader)
    one, two = decode(b"\x02", 0), decode(b"\x02", 0)
    one.tags.append("y")
    one.place.n = 9
    assert (two.tags, two.place.n) == (["x"], 1)


def test_arrays_nested_deeper_than_python_nests_loops(tmp_path: Path) -> None:
    deep: Any = "int"
    value: Any = 7
    for _ in range(24):
        deep, value = {"type": "array", "items": deep}, [value]
    schema = {"type": "record", "name": "Deep", "fields": [{"name": "a", "type": deep}]}
    assert decoder(tmp_path, schema, schema)(written(schema, {"a": value}), 0).a == value


def test_items_without_bytes_do_not_fill_the_memory(tmp_path: Path) -> None:
    array = {"type": "array", "items": "null"}
    schema = {"type": "record", "name": "N", "fields": [{"name": "a", "type": array}]}
    decode = decoder(tmp_path, schema, schema)
    assert decode(b"\x06\x00", 0).a == [None] * 3
    with pytest.raises(ValueError, match="too many items"):
        decode(b"\xfe\xff\xff\xff\x0f\x00", 0)
    array["items"] = {"type": "array", "items": "null"}  # type: ignore[assignment]
    decode = decoder(tmp_path / "nested", schema, schema)
    inner = b"\xbe\x9a\x0c\x00"  # an array of 99,999 nulls
    for _ in range(2):  # what one datum had is not held against the next
        assert len(decode(b"\x02" + inner + b"\x00", 0).a[0]) == 99_999
    with pytest.raises(ValueError, match="too many items"):
        decode(b"\x04" + inner * 2 + b"\x00", 0)


def test_a_symbol_that_the_reader_does_not_know(tmp_path: Path) -> None:
    def schema(**enum: Any) -> dict[str, Any]:
        kind = {"type": "enum", "name": "Kind", **enum}
        return {"type": "record", "name": "S", "fields": [{"name": "k", "type": kind}]}

    writer = schema(symbols=["A", "B"])
    with_default = decoder(tmp_path / "one", writer, schema(symbols=["A"], default="A"))
    assert with_default(b"\x02", 0).k.value == "A"
    without = decoder(tmp_path / "two", writer, schema(symbols=["A"]))
    assert without(b"\x00", 0).k.value == "A"
    with pytest.raises(ValueError, match="no symbol 'B', and no default"):
        without(b"\x02", 0)
