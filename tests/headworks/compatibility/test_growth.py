"""The quick verdict on versions that only lack fields is the verdict of the walk."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from headworks.compatibility import Level, Policy, Version, check_level
from headworks.compatibility._growth import Growth
from headworks.errors import SchemaError
from headworks.schema import Schema, parse
from headworks.schema._parse import SharedFields

pytestmark = pytest.mark.unit

# Types, each with a default that it takes.
TYPES: list[tuple[Any, Any]] = [
    *[("int", 0), ("long", 1), ("string", ""), ("bytes", "ÿ"), ("null", None)],
    *[(["null", "string"], None), (["string", "null"], "x"), (["null", "string", "long"], None)],
    (["int", "long"], 1),
    ({"type": "array", "items": "string"}, []),
    ({"type": "map", "values": {"type": "array", "items": "long"}}, {}),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\1"),
    ({"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
]
NAMES = ["a", "b", "c", "d", "e", "f", "g", "B", "_offset", "DatePartition", "n" * 768]


def drawn_field(chance: random.Random, name: str) -> dict[str, Any]:
    type_, default = chance.choice(TYPES[: chance.choice([5, len(TYPES)])])
    one: dict[str, Any] = {"name": name, "type": type_, "default": default}
    if chance.random() < 0.1:
        one["default"] = chance.choice(["Ā", *(default for _, default in TYPES)])
    if chance.random() < 0.1:
        del one["default"]
    if chance.random() < 0.05:
        one["aliases"] = [chance.choice(NAMES)]
    return one


def drawn_history(chance: random.Random) -> list[dict[str, Any]]:
    """Versions of a record that mostly gains fields, at any place, and seldom loses or changes."""
    fields = [drawn_field(chance, name) for name in chance.sample(NAMES[:5], 2)]
    found = []
    for _ in range(4):
        record: dict[str, Any] = {"type": "record", "name": "R", "fields": [*fields]}
        if chance.random() < 0.05:
            record |= {"name": "S", "aliases": ["R"]}
        found.append(record)
        unused = [name for name in NAMES if all(one["name"] != name for one in fields)]
        at = len(fields) if chance.random() < 0.9 else chance.randrange(len(fields))
        fields.insert(at, drawn_field(chance, chance.choice(unused)))
        if chance.random() < 0.1:
            del fields[chance.randrange(len(fields))]
        if chance.random() < 0.1:
            at = chance.randrange(len(fields))
            fields[at] = drawn_field(chance, fields[at]["name"])
        if chance.random() < 0.1:
            chance.shuffle(fields)
    return found


def parsed(texts: list[dict[str, Any]], shared: SharedFields | None) -> list[Schema]:
    more: dict[str, Any] = {} if shared is None else {"shared": shared, "adds": True}
    return [parse(json.dumps(one), strict=False, **more) for one in texts]


def proposed(texts: list[dict[str, Any]]) -> list[Schema]:
    """Stored versions, and one that is only proposed: its new fields are shared with no other."""
    *stored, last = texts
    shared: SharedFields = {}
    found = parsed(stored, shared)
    try:
        return [*found, parse(json.dumps(last), shared=shared)]
    except SchemaError:  # a default that is not one of its type
        return [*found, parse(json.dumps(last), strict=False)]


def verdict(schemas: list[Schema], level: Level, policy: Policy) -> list[dict[str, Any]]:
    history = [Version(number, one) for number, one in enumerate(schemas[:-1], 1)]
    return [one.as_dict() for one in check_level(schemas[-1], history, level, policy)]


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("level", [Level.BACKWARD_TRANSITIVE, Level.FORWARD, Level.FULL_TRANSITIVE])
def test_the_verdict_does_not_depend_on_shared_fields(level: Level, policy: Policy) -> None:
    covered = walked = grown = 0
    for seed in range(700):
        texts = drawn_history(random.Random(seed))
        shared, alone = parsed(texts, {}), parsed(texts, None)
        assert verdict(shared, level, policy) == verdict(alone, level, policy), texts
        growth = Growth(shared[-1])
        *stored, new = proposed(texts)
        assert verdict([*stored, new], level, policy) == verdict(alone, level, policy), texts
        grown += sum(map(Growth(new).covers, stored))
        for old in shared[:-1]:
            covered, walked = covered + growth.covers(old), walked + (not growth.covers(old))
        assert not any(Growth(alone[-1]).covers(old) for old in alone[:-1] if old is not alone[-1])
    assert min(covered, walked, grown) > 100  # all ways were taken


def test_two_fields_that_read_one_are_found_if_one_of_them_is_shared() -> None:
    a = {"name": "a", "type": "long"}
    b = {"name": "b", "type": "long", "default": 0, "aliases": ["a"]}
    texts = [
        {"type": "record", "name": "R", "fields": [first, a]}
        for first in ({"name": "x", "type": "long"}, b)
    ]
    shared, alone = parsed(texts, {}), parsed(texts, None)
    found = verdict(shared, Level.BACKWARD, Policy.STRICT)
    assert found == verdict(alone, Level.BACKWARD, Policy.STRICT)
    assert "HW101" in [one["rule"] for one in found]


def test_a_version_that_only_lacks_fields_is_covered() -> None:
    fields = [{"name": f"f{i}", "type": "long", "default": i} for i in range(9)]
    texts = [{"type": "record", "name": "R", "fields": fields[:count]} for count in (3, 5, 9)]
    *old, new = parsed(texts, {})
    growth = Growth(new)
    assert all(map(growth.covers, [*old, new]))
    assert not Growth(old[0]).covers(new)
    assert not growth.covers(parse('"int"'))
    *stored, new = proposed(texts)
    assert all(map(Growth(new).covers, stored))


def test_a_new_field_of_a_named_type_is_walked() -> None:
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "R"], "default": None}]
    texts = [{"type": "record", "name": "R", "fields": fields[:count]} for count in (1, 2)]
    stored, new = proposed(texts)
    assert not Growth(new).covers(stored)
    found = verdict([stored, new], Level.BACKWARD, Policy.WAREHOUSE)
    assert found == verdict(parsed(texts, None), Level.BACKWARD, Policy.WAREHOUSE)
    assert len(found) == 1
