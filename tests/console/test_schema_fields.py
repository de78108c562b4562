"""The fields of a schema's page: the version that each came with, and how many there may be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headworks._console.sources.field_paths import dotted_paths
from headworks._console.views.schema import field_lines
from headworks.schema import Schema, parse

pytestmark = pytest.mark.unit


def record(name: str, *fields: tuple[str, Any]) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def parsed(kind: Any) -> Schema:
    return parse(json.dumps(kind))


def test_a_field_is_as_old_as_the_versions_in_a_row_that_have_it() -> None:
    inner = record("I", ("x", "int"))
    more = record("I", ("x", "int"), ("y", "int"))
    history = {
        1: parsed(record("E", ("a", "int"), ("left", "int"))),
        2: parsed(record("E", ("a", "int"))),
        3: parsed(record("E", ("a", "int"), ("left", "int"), ("list", array(inner)))),
        4: parsed(record("E", ("a", "int"), ("left", "int"), ("list", array(["null", more])))),
    }
    lines = {line.path: line.since for line in field_lines(history[4], history)}
    assert lines == {"a": 1, "left": 3, "list": 3, "list[].x": 3, "list[].y": 4}
    unreadable = {**history, 3: None}
    assert {line.since for line in field_lines(history[4], unreadable)} == {4}


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


@pytest.mark.timeout(60)
def test_types_that_double_at_every_step_show_the_first_fields() -> None:
    inner = record("R0", ("x", "int"))
    for n in range(1, 60):
        inner = record(f"R{n}", ("a", inner), ("b", f"R{n - 1}"))
    schema = parsed(inner)
    assert len([*field_lines(schema, {1: schema, 2: schema})]) == 2000
    assert len(dotted_paths(schema, 100)) == 100
