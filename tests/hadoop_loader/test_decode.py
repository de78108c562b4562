"""The decoder against fastavro: the same rows for generated schemas, evolutions and data."""

from __future__ import annotations

import io
import json
import math
import random
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from hadoop_loader._decode.decoder import ColumnDecoder
from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns
from hadoop_loader._tables.arrow_types import arrow_type
from headworks._native import COMPILED
from headworks.errors import SchemaError
from headworks.schema import parse
from tests.evolution import as_column, evolution, value_of
from tests.tools import needs

pytestmark = pytest.mark.contract

Json = Any


def decode(writer: Json, reader: Json, data: list[bytes]) -> tuple[list[Any], list[Any]]:
    """The rows and errors, which both back ends have to agree on."""
    decoder = ColumnDecoder(parse(json.dumps(writer)), parse(json.dumps(reader)), start=0)
    rows, errors = rows_of(decoder, *decoder.decode(data)), decoder.decode(data)[1]
    messages = MessageColumns.of(FetchedMessage(0, 0, 0, None, each) for each in data)
    compiled = ColumnDecoder(
        parse(json.dumps(writer)), parse(json.dumps(reader)), start=0, compiled=COMPILED
    )
    for part in (slice(None), slice(0, 1), slice(1, None)):  # room that was used is used again
        chosen = messages[part]
        arrays, found = compiled.decode_spans(chosen.data, chosen.starts, chosen.ends)
        expected = decoder.decode(data[part])
        assert same(rows_of(compiled, arrays, found), rows_of(decoder, *expected))
        assert found == expected[1]
    return rows, errors


def rows_of(decoder: ColumnDecoder, arrays: list[Any], _: Any) -> list[Any]:
    for array, column in zip(arrays, decoder.columns, strict=True):
        array.validate(full=True)
        assert array.type == arrow_type(column.type)
    names = [column.name for column in decoder.columns]
    try:
        return pa.Table.from_arrays(arrays, names=names).to_pylist()
    except OverflowError:  # random bytes may be a day that Python has no date for
        reject()


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


@pytest.mark.parametrize("keep", [True, False], ids=["read", "skipped"])
@pytest.mark.parametrize("sizes", [(1 << 40, 0), ((1 << 62) - 1, (1 << 62) - 1)])
def test_a_size_beyond_the_datum_reads_nothing(sizes: tuple[int, int], keep: bool) -> None:
    texts = [{"name": name, "type": "string"} for name in "ab"]
    data = b"".join(written("long", size) for size in sizes)
    writer = record(*texts, {"name": "c", "type": "null"})
    reader = writer if keep else record({"name": "c", "type": "null"})
    assert [at for at, _ in decode(writer, reader, [data, data])[1]] == [0, 1]


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("long", b"", "ends too early"),
        ("long", b"\xff" * 11, "more than 10 bytes"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
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
        ({"type": "map", "values": "int"}, b"\x04\x00\x00\x00\x00\x00", "occurs twice"),
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


@pytest.mark.parametrize("letter", [b"a", "é".encode(), "é".encode()[:1], b"a\x80"])
def test_a_text_ends_where_its_size_says_whatever_follows(letter: bytes) -> None:
    """Texts of all sizes, between good ones; the byte after each is no UTF-8."""
    tail = {"type": "fixed", "name": "Tail", "size": 1}
    schema = record({"name": "text", "type": "string"}, {"name": "tail", "type": tail})
    data = []
    for size in range(70):
        around = b"x" * (size // 2)
        texts = (around * 2, around + letter + around, letter, around + letter)
        data += [written("bytes", text) + b"\xff" for text in texts]
    rows, errors = decode(schema, schema, data * 2)
    good = letter in (b"a", "é".encode())
    assert (len(rows), len(errors)) == ((560, 0) if good else (140, 420))


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
        ColumnDecoder(parse(json.dumps(tree)), parse(json.dumps(tree)))


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


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "Ü"]}


@needs("extensions")
@pytest.mark.parametrize(
    ("writer", "reader", "datum", "reason"),
    [
        ("long", "int", b"\x02", "long cannot be read as int"),
        (["null", "long"], ["null", "int"], b"\x02\x02", "long is no branch of the reader's union"),
        (["null", "long"], "long", b"\x00", "null cannot be read as long"),
        (ENUM, {**ENUM, "symbols": ["A"]}, b"\x02", "the latest schema has no symbol 'B'"),
        (ENUM, {**ENUM, "symbols": ["A"]}, b"\x04", "has no symbol 'Ü'"),
        (
            {"type": "array", "items": ["int", "string"]},
            {"type": "array", "items": "int"},
            b"\x04\x00\x02\x02\x02a\x00",
            "string cannot be read as int",
        ),
        (
            {"type": "map", "values": ENUM},
            {"type": "map", "values": {**ENUM, "symbols": ["B"]}},
            b"\x02\x02k\x00\x00",
            "has no symbol 'A'",
        ),
    ],
)
def test_reasons_that_schemas_give_cost_no_second_reading(
    writer: Json, reader: Json, datum: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = {"name": "before", "type": "string"}, {"name": "after", "type": "boolean"}
    pair = [record(before, {"name": "f", "type": one}, after) for one in (writer, reader)]
    whole = b"\x02x" + datum + b"\x01"
    # Damage before the place gives another reason than damage behind it.
    damaged = [b"\x02\xff" + datum + b"\x01", b"\x02x" + datum + b"\x07", whole + b"\0", whole[:1]]
    _, errors = decode(pair[0], pair[1], [whole, *damaged])
    assert [at for at, _ in errors] == [0, 1, 2, 3, 4]
    assert reason in errors[0][1]
    schemas = [parse(json.dumps(one)) for one in pair]
    compiled = ColumnDecoder(*schemas, start=0, compiled=COMPILED)
    monkeypatch.setattr(compiled, "decode", None)  # no generated Python
    many = MessageColumns.of(FetchedMessage(0, 0, 0, None, whole) for _ in range(3))
    found = compiled.decode_spans(many.data, many.starts, many.ends)[1]
    assert found == [(at, errors[0][1]) for at in range(3)]


def test_a_field_without_a_default_gives_its_reason() -> None:
    old = record({"name": "a", "type": "int"})
    new = record({"name": "a", "type": "int"}, {"name": "b", "type": "int"})
    found = decode(old, new, [b"\x02", b""])[1]  # of a record that no datum can fill
    assert found == [(at, "R has no field 'b', and the reader has no default") for at in (0, 1)]


def test_hostile_counts_cost_little_time_and_memory() -> None:
    nulls = {"type": "array", "items": {"type": "array", "items": "null"}}
    schema = record({"name": "a", "type": nulls})
    inner = b"\xbe\x9a\x0c\x00"  # an array of 99,999 nulls
    bomb = b"\xd0\x0f" + inner * 1000 + b"\x00"
    fine = b"\x02" + inner + b"\x00"
    rows, errors = decode(schema, schema, [bomb, b"\x00", bomb])
    assert rows == [{"a": []}]
    assert [reason for _, reason in errors] == [
        "an array has too many items that take no bytes"
    ] * 2
    assert len(decode(schema, schema, [fine])[0][0]["a"][0]) == 99_999
    gone = decode(schema, record({"name": "b", "type": "int", "default": 1}), [bomb])
    assert gone == ([{"b": 1}], [])


def test_many_keys_of_a_map_are_told_apart_in_little_time() -> None:
    schema = record({"name": "m", "type": {"type": "map", "values": "null"}})
    keys = [f"key {i}" for i in range(30_000)]
    rows, errors = decode(
        schema,
        schema,
        [
            written(schema, {"m": dict.fromkeys(keys)}),
            written(schema, {"m": dict.fromkeys(keys[:100])})[:-1]
            + written(schema, {"m": {"key 77": None}}),
        ],
    )
    assert len(rows[0]["m"]) == 30_000
    assert errors == [(1, "map key 'key 77' occurs twice")]


@pytest.mark.parametrize("precision", [1, 9, 18, 38, 39, 100])
def test_decimals_at_their_limits(precision: int) -> None:
    scale = precision // 2
    logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
    schema = record({"name": "d", "type": {"type": "bytes", **logical}})
    most = 10**precision - 1
    numbers = [0, 1, -1, most, -most, most + 1, -most - 1, most // 7, -most // 3]
    data = []
    for number in numbers:
        for more in (0, 1, 30):  # signs before it mean nothing
            raw = number.to_bytes(number.bit_length() // 8 + 1 + more, "big", signed=True)
            data.append(written("bytes", raw))
    rows, errors = decode(schema, schema, [b"\x00", *data])
    assert [at for at, _ in errors] == [16, 17, 18, 19, 20, 21]
    exact = Context(prec=200)
    wanted = [Decimal(n).scaleb(-scale, exact) for n in numbers if abs(n) <= most]
    found = [Decimal(row["d"]) for row in rows]
    assert found == [0, *(number for number in wanted for _ in range(3))]


@needs("extensions")
def test_schemas_that_python_cannot_nest_are_compiled() -> None:
    deep: Json = "int"
    for _ in range(20):
        deep = {"type": "array", "items": deep}
    schema = parse(json.dumps(record({"name": "a", "type": deep})))
    one = MessageColumns.of([FetchedMessage(0, 0, 0, None, b"\x02" * 20 + b"\x0e" + b"\x00" * 20)])
    decoder = ColumnDecoder(schema, schema, start=0)
    arrays, errors = decoder.decode_spans(one.data, one.starts, one.ends)
    assert errors == []
    value = arrays[0].to_pylist()[0]
    for _ in range(20):
        (value,) = value
    assert value == 7
    short = MessageColumns.of([FetchedMessage(0, 0, 0, None, b"\x02" * 20)])
    _, [(_, reason)] = decoder.decode_spans(short.data, short.starts, short.ends)
    assert reason.startswith("the bytes are no datum of the schema")
