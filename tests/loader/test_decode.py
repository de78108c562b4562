"""The decoder against fastavro: the same rows for generated schemas, evolutions and data."""

from __future__ import annotations

import io
import json
import math
import random
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hadoop_loader.arrow import arrow_type
from hadoop_loader.decode import Decoder
from headworks.errors import SchemaError
from headworks.schema import parse
from tests.evolution import as_column, evolution, value_of

Json = Any


def decode(writer: Json, reader: Json, data: list[bytes]) -> tuple[list[Any], list[Any]]:
    decoder = Decoder(parse(json.dumps(writer)), parse(json.dumps(reader)), start=0)
    arrays, errors = decoder.decode(data)
    for array, column in zip(arrays, decoder.columns, strict=True):
        array.validate(full=True)
        assert array.type == arrow_type(column.type)
    names = [column.name for column in decoder.columns]
    return pa.Table.from_arrays(arrays, names=names).to_pylist(), errors


def written(schema: Json, value: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_projects_as_fastavro_does(seed: int) -> None:
    rng = random.Random(seed)
    writer, reader = evolution(rng)
    values = [value_of(writer, rng) for _ in range(5)]
    data = [written(writer, value) for value in values]
    rows, errors = decode(writer, reader, data)
    assert errors == []
    old, new = (
        parse_schema(json.loads(json.dumps(writer))),
        parse_schema(json.loads(json.dumps(reader))),
    )
    resolved: list[Any] = [schemaless_reader(io.BytesIO(each), old, new) for each in data]
    expected = [
        {f["name"]: as_column(f["type"], value[f["name"]]) for f in reader["fields"]}
        for value in resolved
    ]
    assert all(same(a, b) for a, b in zip(rows, expected, strict=True)), (rows, expected)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_a_broken_datum_costs_itself_alone(seed: int) -> None:
    rng = random.Random(seed)
    writer, reader = evolution(rng)
    good = [written(writer, value_of(writer, rng)) for _ in range(6)]
    expected, _ = decode(writer, reader, good)
    mixed, kept = [], []
    for each in good:
        mixed.append(each[: rng.randrange(len(each))] if each else b"\xff" * 11)
        if rng.random() < 0.5:
            mixed.append(bytes(rng.randrange(256) for _ in range(len(each))))
        mixed.append(each)
        kept.append(len(mixed) - 1)
    rows, errors = decode(writer, reader, mixed)
    wrong = {at for at, _ in errors}
    assert not wrong & set(kept)
    positions = [i for i in range(len(mixed)) if i not in wrong]
    found = [row for i, row in zip(positions, rows, strict=True) if i in kept]
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def record(*fields: Json, name: str = "R") -> Json:
    return {"type": "record", "name": name, "fields": list(fields)}


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("long", b"", "ends too early"),
        ("long", b"\xff" * 11, "more than 10 bytes"),
        ("int", b"\xff\xff\xff\xff\xff\x01", "more than 32 bits"),
        ("boolean", b"\x02", "not a boolean"),
        ("string", b"\x01", "negative"),
        ("string", b"\x04\xff\xff", "utf-8"),
        ("double", b"\x00", "ends too early"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no symbol"),
        (["null", "int"], b"\x04", "no branch"),
        (["null", "int"], b"\x01", "no branch"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\x7f\x00", "too many items"),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\x7f\x00", "ends too early"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x00\x02a\x00\x00", "occurs twice"),
        ("int", b"\x02\x02", "1 bytes are left"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            b"\x04\x7f\xff",
            "more than 2 digits",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xfe" + b"\xff" * 8 + b"\x01",
            "range",
        ),
    ],
)
def test_says_what_is_wrong_with_a_datum(schema: Json, data: bytes, reason: str) -> None:
    wrapped = record({"name": "f", "type": schema})
    rows, errors = decode(wrapped, wrapped, [data])
    assert rows == []
    assert len(errors) == 1
    assert reason in errors[0][1]


def test_skips_what_the_reader_does_not_know_also_recursion() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [
            {"name": "kids", "type": {"type": "array", "items": "Tree"}},
            {"name": "labels", "type": {"type": "map", "values": ["null", "string", "double"]}},
        ],
    }
    writer = record({"name": "gone", "type": tree}, {"name": "kept", "type": "int"})
    reader = record({"name": "kept", "type": "int"})
    leaf = {"kids": [], "labels": {"a": "x", "b": 1.5, "c": None}}
    value = {"gone": {"kids": [leaf, {"kids": [leaf], "labels": {}}], "labels": {}}, "kept": 7}
    assert decode(writer, reader, [written(writer, value)]) == ([{"kept": 7}], [])
    deep = b"\x02" * 100_000
    assert "nested too deeply" in decode(writer, reader, [deep])[1][0][1]


def test_recursion_in_the_reader_is_refused_by_name() -> None:
    tree = record({"name": "next", "type": ["null", "R"]})
    with pytest.raises(SchemaError, match="R contains itself"):
        Decoder(parse(json.dumps(tree)), parse(json.dumps(tree)))


def test_aliases_enum_defaults_and_negative_block_counts() -> None:
    old = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    new = {"type": "enum", "name": "E", "symbols": ["A", "OTHER"], "default": "OTHER"}
    array = {"type": "array", "items": "int"}
    writer = record({"name": "a", "type": old}, {"name": "x", "type": array})
    reader = record(
        {"name": "b", "aliases": ["a"], "type": new},
        {"name": "x", "type": array},
    )
    data = b"\x04" + b"\x03\x04\x02\x04" + b"\x00"
    assert decode(writer, reader, [data]) == ([{"b": "OTHER", "x": [1, 2]}], [])
    strict = record({"name": "a", "type": {**new, "symbols": ["A"], "default": "A"}})
    assert decode(record({"name": "a", "type": old}), strict, [b"\x02"]) == ([{"a": "A"}], [])


def test_a_union_of_several_branches_is_a_struct_of_them() -> None:
    union = ["null", "string", "long", record({"name": "v", "type": "int"}, name="Inner")]
    schema = record({"name": "u", "type": union})
    values = [None, "x", 5, {"v": 1}]
    rows, _ = decode(schema, schema, [written(schema, {"u": value}) for value in values])
    nothing = {"string": None, "long": None, "Inner": None}
    assert [row["u"] for row in rows] == [
        None,
        {**nothing, "string": "x"},
        {**nothing, "long": 5},
        {**nothing, "Inner": {"v": 1}},
    ]
    narrow = record({"name": "u", "type": "long"})
    rows, errors = decode(schema, narrow, [written(schema, {"u": value}) for value in values])
    assert rows == [{"u": 5}]
    assert [at for at, _ in errors] == [0, 1, 3]
