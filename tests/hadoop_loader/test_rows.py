"""Rows of a DataFrame as data of a schema: an error names the column that does not fit."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from hadoop_loader._spark.rows import datum_of
from headworks.schema import parse

pytestmark = pytest.mark.unit

Json = Any

E: Json = {"type": "enum", "name": "E", "symbols": ["A"]}
F: Json = {"type": "fixed", "name": "F", "size": 2}
WIDE: Json = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}
UUID_: Json = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
SPAN: Json = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
IN: Json = {
    "type": "record",
    "name": "In",
    "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}],
}


def record(*fields: Json) -> Json:
    return {"type": "record", "name": "R", "namespace": "a.b", "fields": list(fields)}


def datum(schema: Json, row: Any) -> Any:
    return datum_of(parse(json.dumps(schema), strict=False))(row)


@pytest.mark.parametrize(
    ("type_", "value", "told"),
    [
        ("int", None, "column c is null, and the schema has no null there"),
        (["int", "string"], None, "column c is null, and the schema has no null there"),
        (["int", "string"], {"int": 1, "string": "x"}, "column c is a struct with 2 members set"),
        (["null", E, "int"], {"E": "B", "int": None}, "column c.E is 'B', which is no symbol"),
        (E, "B", "column c is 'B', which is no symbol of a.b.E"),
        (F, b"abc", "column c is 3 bytes long, and a.b.F has 2"),
        ("float", 1e39, "column c is 1e\\+39, which is too large for a float of 32 bits"),
        (WIDE, "x", r"column c is 'x', which is no decimal\(40,2\)"),
        (WIDE, "1.555", r"which is no decimal\(40,2\)"),
        (WIDE, "1e38", r"which is no decimal\(40,2\)"),
        (WIDE, "1e999999999", r"which is no decimal\(40,2\)"),
        (UUID_, "nope", "column c is 'nope', which is no uuid"),
        (SPAN, {"months": -1, "days": 0, "millis": 0}, "column c is .* which is no duration"),
        ({"type": "array", "items": IN}, [{"m": [("k", None)]}], r"column c\[\]\.m\{\} is null"),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_its_column(
    type_: Json, value: Any, told: str
) -> None:
    with pytest.raises(ValueError, match=f"^.*{told}"):
        datum(record({"name": "c", "type": type_}), {"c": value})


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("float", float("inf")),
        ("float", 7),
        ("null", None),
        (["null", "int"], None),
        (WIDE, "1e37"),
    ],
)
def test_what_fits_is_taken(type_: Json, value: Any) -> None:
    assert datum(record({"name": "c", "type": type_}), {"c": value})["c"] in (
        value,
        Decimal("1e37"),
    )


def test_a_missing_column_leaves_its_field_to_the_default_whatever_its_type() -> None:
    inner = record({"name": "q", "type": "bytes", "default": "z"}, {"name": "n", "type": "int"})
    price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    schema = record(
        {"name": "id", "type": "int"},
        {"name": "price", "type": price, "default": "\u0001\u00ff"},
        {"name": "mark", "type": F, "default": "\u0001\u00ff"},
        {"name": "key", "type": ["bytes", "null"], "default": "x"},
        {"name": "inner", "type": ["int", {**inner, "name": "Inner"}], "default": {"n": 1}},
        {
            "name": "list",
            "type": {"type": "array", "items": ["null", "F"]},
            "default": ["ab", None],
        },
        {"name": "map", "type": {"type": "map", "values": "bytes"}, "default": {"k": "x"}},
        {"name": "e", "type": E, "default": "A"},
        {"name": "note", "type": ["null", "string"], "default": None},
    )
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), datum(schema, {"id": 7}))
    out.seek(0)
    assert schemaless_reader(out, parse_schema(schema), None) == {
        "id": 7,
        "price": Decimal("5.11"),
        "mark": b"\x01\xff",
        "key": b"x",
        "inner": {"q": b"z", "n": 1},
        "list": [b"ab", None],
        "map": {"k": b"x"},
        "e": "A",
        "note": None,
    }
