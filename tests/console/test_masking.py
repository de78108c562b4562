"""Sensitive fields are masked, wherever they are in the event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._console.masking import MASK, masked
from headworks.schema import parse
from headworks.schema._sensitive import sensitive_paths

pytestmark = pytest.mark.unit

SECRET = "secret-4711"


def record(name: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def hide(schema: dict[str, Any], value: Any) -> Any:
    return masked(value, sensitive_paths(parse(json.dumps(schema))))


def test_a_path_is_masked_and_not_a_name() -> None:
    person = record("P", field("name", "string", sensitive=True))
    thing = record("T", field("name", "string"))
    schema = record("E", field("person", person), field("thing", thing))
    value = {"person": {"name": SECRET}, "thing": {"name": "lamp"}}
    assert hide(schema, value) == {"person": {"name": MASK}, "thing": {"name": "lamp"}}


def test_lists_maps_unions_and_types_are_looked_into() -> None:
    inner = record("I", field("x", {"type": "string", "sensitive": True}), field("y", "int"))
    schema = record(
        "E",
        field("list", {"type": "array", "items": inner}),
        field("map", {"type": "map", "values": "I"}),
        field("maybe", ["null", "I"]),
        field("numbers", {"type": "array", "items": "int"}, sensitive="pii"),
    )
    value = {
        "list": [{"x": SECRET, "y": 1}],
        "map": {"a": {"x": SECRET, "y": 2}},
        "maybe": {"x": SECRET, "y": 3},
        "numbers": [4, 7, 1, 1],
    }
    found = hide(schema, value)
    assert SECRET not in json.dumps(found)
    assert found["numbers"] == MASK
    assert found["map"]["a"]["y"] == 2


def test_a_map_in_a_union_with_a_record_hides_what_either_would() -> None:
    inner = record("I", field("a", "string"))
    secret_map = {"type": "map", "values": record("S", field("b", "string", sensitive=True))}
    schema = record("E", field("u", [inner, secret_map]))
    assert hide(schema, {"u": {"a": {"b": SECRET}}}) == {"u": {"a": {"b": MASK}}}


def test_a_recursive_type_with_a_secret_is_hidden_below_its_first_level() -> None:
    schema = record(
        "Node", field("secret", "string", sensitive=True), field("next", ["null", "Node"])
    )
    value = {"secret": SECRET, "next": {"secret": SECRET, "next": None}}
    assert hide(schema, value) == {"secret": MASK, "next": MASK}


def test_null_says_nothing_and_stays() -> None:
    schema = record("E", field("x", ["null", "string"], sensitive=True))
    assert hide(schema, {"x": None}) == {"x": None}


def test_not_sensitive_means_not_masked() -> None:
    schema = record("E", field("x", "string", sensitive=False))
    assert hide(schema, {"x": "open"}) == {"x": "open"}


@st.composite
def nested(draw: st.DrawFn, depth: int = 3) -> tuple[Any, Any]:
    """A type that holds the secret somewhere below, marked, and a value of it."""
    number = draw(st.integers(0, 10**6))
    if depth == 0:
        return {"type": "string", "sensitive": True}, SECRET
    kind, value = draw(nested(depth=depth - 1))
    shape = draw(st.sampled_from(["record", "array", "map", "union"]))
    if shape == "array":
        return {"type": "array", "items": kind}, [value, value]
    if shape == "map":
        return {"type": "map", "values": kind}, {draw(st.text(max_size=3)): value}
    if shape == "union" and not isinstance(kind, list):
        return ["null", kind], value
    name = f"R{depth}_{number}"
    return record(name, field("a", "int"), field("b", kind)), {"a": 1, "b": value}


@given(nested())
def test_no_shape_lets_a_secret_through(made: tuple[Any, Any]) -> None:
    kind, value = made
    schema = record("Event", field("top", kind), field("open", "string"))
    found = hide(schema, {"top": value, "open": "shown"})
    assert SECRET not in json.dumps(found)
    assert found["open"] == "shown"
