"""What of a table is sensitive, and the SQL that hides it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hadoop_loader._decode.recursive_types import flat_schema
from hadoop_loader._tables.old_rows import SchemaProjection
from hadoop_loader._tables.sensitive import (
    PROPERTY,
    known_paths,
    masked_query,
    sensitive_columns,
    sensitive_property,
)
from headworks.schema import parse
from headworks.schema._sensitive import sensitive_paths

pytestmark = pytest.mark.unit


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def record(name: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def history(*schemas: Any) -> list[SchemaProjection]:
    return [SchemaProjection(n, n, parse(json.dumps(s))) for n, s in enumerate(schemas, 1)]


def listed(*schemas: Any) -> str:
    found = history(*schemas)
    marks = sensitive_columns(found, known_paths(found, ()))
    return sensitive_property(marks).get(PROPERTY, "")


SECRET = field("x", "string", sensitive=True)
INNER = record("I", SECRET, field("y", "int"))


@pytest.mark.parametrize(
    ("schemas", "expected"),
    [
        ([record("E", field("a", "int"))], ""),
        ([record("E", field("a", "int"), sensitive=True)], "a"),
        ([record("E", field("a", INNER), field("b", "I"))], "a.x,b.x"),
        ([record("E", field("a", ["null", INNER]))], "a.x"),
        ([record("E", field("a", ["string", INNER]))], "a"),
        ([record("E", field("a", {"type": "array", "items": INNER}))], "a"),
        ([record("E", field("a", {"type": "map", "values": INNER}))], "a"),
        ([record("E", field("a", record("J", field("i", INNER))))], "a.i.x"),
        ([{"type": "string", "sensitive": True}], "value"),
        ([{"type": "array", "items": INNER}], "value"),
        # A mark of an earlier schema stays, for the field's new name as well.
        ([record("E", SECRET), record("E", field("x", "string"))], "x"),
        ([record("E", SECRET), record("E", field("z", "string", aliases=["x"]))], "x,z"),
        ([record("E", field("x", "string")), record("E", SECRET)], "x"),
        (
            [
                record("E", SECRET),
                record("E", field("z", "string", aliases=["x"])),
                record("E", field("z", "string")),
            ],
            "x,z",
        ),
    ],
)
def test_what_is_sensitive(schemas: list[Any], expected: str) -> None:
    assert listed(*schemas) == expected


def test_the_property_fits_into_a_metastore() -> None:
    fields = [field(f"a_long_name_{n}", "string", sensitive=True) for n in range(500)]
    text = listed(record("E", *fields))
    assert len(text) <= 4000
    assert text.endswith(",...")
    assert all(name.startswith("a_long_name_") for name in text.split(",")[:-1])


def test_masked_sql() -> None:
    schemas = history(record("E", field("a", ["null", INNER]), field("b", "int"), SECRET))
    paths = known_paths(schemas, ())
    assert masked_query("v", ["a", "b", "x", "_load"], schemas[-1].schema, paths) == (
        "SELECT CASE WHEN `a` IS NOT NULL THEN named_struct('x', CASE WHEN FALSE THEN `a`.`x` END, "
        "'y', `a`.`y`) END AS `a`, `b`, CASE WHEN FALSE THEN `x` END AS `x`, `_load` FROM v"
    )


def test_text_of_a_recursive_type_is_as_sensitive_as_the_type() -> None:
    node = record("Node", SECRET, field("next", ["null", "Node"]), field("nodes", "int"))
    flat = flat_schema(json.dumps(node))
    assert flat is not None
    assert sensitive_paths(parse(flat)) == {("x",), ("next",)}
    plain = flat_schema(json.dumps(record("Node", field("next", ["null", "Node"]))))
    assert plain is not None
    assert not sensitive_paths(parse(plain))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("last", "expected"), [(field("x", "int"), set()), (SECRET, {()})])
def test_types_that_double_at_every_step_are_sensitive_as_a_whole_or_not_at_all(
    last: dict[str, Any], expected: set[tuple[str, ...]]
) -> None:
    inner = record("R0", last)
    for n in range(1, 60):
        inner = record(f"R{n}", field("a", inner), field("b", f"R{n - 1}"))
    assert sensitive_paths(parse(json.dumps(inner))) == expected


def test_a_mark_in_many_places_is_one_of_the_whole_event() -> None:
    columns = [field(f"x{n}", "int", sensitive=True) for n in range(200)]
    few, many = (
        record("E", field("a0", record("I", *columns)), *(field(f"a{n}", "I") for n in range(1, k)))
        for k in (10, 200)
    )
    assert len(sensitive_paths(parse(json.dumps(few)))) == 2000
    assert sensitive_paths(parse(json.dumps(many))) == {()}
