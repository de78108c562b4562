"""The difference between two schemas, in a reader's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headworks.schema import parse
from headworks.schema._difference import differences

pytestmark = pytest.mark.unit


def changes(old: Any, new: Any) -> list[str]:
    found = differences(parse(json.dumps(old)), parse(json.dumps(new)))
    assert [one.as_dict()["path"] for one in found] == [one.path for one in found]
    return [str(one) for one in found]


def record(*fields: Any, **more: Any) -> Any:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def test_nothing_changed_but_white_space_and_order_of_members() -> None:
    schema = record({"name": "a", "type": "int"}, {"type": "R", "name": "b"})
    assert changes(schema, dict(reversed(schema.items()))) == []


def test_each_kind_of_change_is_named_once() -> None:
    inner = {"type": "record", "name": "N", "fields": [{"name": "x", "type": "int"}]}
    old = record(
        {"name": "a", "type": "int"},
        {"name": "gone", "type": "string"},
        {"name": "n", "type": {"type": "array", "items": inner}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
    )
    wider = {**inner, "fields": [{"name": "x", "type": "long", "doc": "now told"}]}
    new = record(
        {"name": "aa", "type": "int", "aliases": ["a"], "default": 1},
        {"name": "n", "type": {"type": "array", "items": wider}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "more", "type": ["null", "int"], "default": None},
        doc="a record",
    )
    assert changes(old, new) == [
        "~ schema: doc none -> a record",
        "~ aa: renamed a -> aa",
        "~ aa: default none -> 1",
        "~ aa: aliases none -> a",
        "+ more: [null, int] = null",
        "- gone: string",
        "~ n[].x: doc none -> now told",
        "~ n[].x: type int -> long",
        "~ e: symbols A -> A, B",
    ]


def test_recursion_ends() -> None:
    node = record({"name": "next", "type": ["null", "R"], "default": None})
    assert changes(node, {**node, "doc": "x"}) == ["~ schema: doc none -> x"]
