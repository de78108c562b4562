"""Texts that were made to hurt: bounded time and a clear error, or an answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from headworks.compatibility import Level, Policy, Version, check_level, check_pair
from headworks.compatibility._budget import Budget
from headworks.errors import SchemaError, UsageError
from headworks.schema import Schema, parse
from headworks.schema._canonical import canonical_text, normalized_text
from headworks.schema._difference import differences

pytestmark = pytest.mark.unit


@contextmanager
def seconds(most: float) -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < most


def record(*fields: Any, name: str = "R") -> Any:
    return {"type": "record", "name": name, "fields": list(fields)}


def everything(schema: Schema) -> None:
    """What is done with a schema that was accepted."""
    canonical_text(schema)
    normalized_text(schema)
    differences(schema, schema)
    for policy in Policy:
        with suppress(UsageError):  # too large to compare
            check_pair(schema, schema, policy)


DEEP = 10_000
UNFINISHED = 200_000
REFUSED: dict[str, tuple[str, str]] = {
    "lists": ("[" * DEEP + "]" * DEEP, "nested"),
    "objects": ('{"type":' * DEEP + '"int"' + "}" * DEEP, "nested|needs a `type`"),
    "arrays": ('{"type":"array","items":' * DEEP + '"int"' + "}" * DEEP, "nested"),
    "just below the limit of JSON": (
        '{"type":"array","items":' * 450 + '"int"' + "}" * 450,
        "deep",
    ),
    "a deep default": (
        f'{{"type":"record","name":"R","fields":[{{"name":"a","type":"int",'
        f'"default":{"[" * 400}{"]" * 400}}}]}}',
        "deep",
    ),
    "a deep property": (f'{{"type":"int","p":{"[" * 400}{"]" * 400}}}', "deep"),
    "a deep name": (f'{{"type":"record","fields":[],"name":{"[" * 400}{"]" * 400}}}', "name"),
    "a number of 5,000 digits": (
        f'{{"type":"fixed","name":"F","size":{"9" * 5000}}}',
        "5,000 digits, and at most 4,300",
    ),
    "a number of 4,000 digits": (f'{{"type":"fixed","name":"F","size":{"9" * 4000}}}', "length"),
    "a long name": (json.dumps(record(name="a-" * 500_000)), "is not a name"),
    "comments that never end": ("/*" * UNFINISHED, "JSON"),
    "comments between commas": ("/*," * UNFINISHED, "empty"),
    "strings that never end": ('"\\' * UNFINISHED, "JSON"),
    "quotes": ('"' * (UNFINISHED + 1), "JSON"),
    "a lone surrogate as a name": ('{"type":"record","name":"\\ud800","fields":[]}', "not a name"),
    "a lone surrogate as a symbol": (
        '{"type":"enum","name":"E","symbols":["\\udfff"]}',
        "not an enum symbol",
    ),
    "a null byte": ('{"type":"record","name":"A\\u0000","fields":[]}', "not a name"),
    "nothing but marks": ("]" * UNFINISHED, "JSON"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_at_once_with_a_short_reason(text: str, words: str) -> None:
    with seconds(3), pytest.raises(SchemaError, match=words) as caught:
        parse(text)
    assert len(str(caught.value)) < 2000
    str(caught.value).encode()


def doubling(levels: int, leaf: Any, default: bool = False) -> list[Any]:
    """Flat in the text; written out it would be a tree of 2 ** levels leaves."""
    more: dict[str, Any] = {"default": {}} if default else {}
    first = record({"name": "x", "type": leaf, **({"default": "Z"} if default else {})}, name="R0")
    fields = [{"name": "r0", "type": first}]
    for i in range(1, levels):
        inner = [{"name": n, "type": f"R{i - 1}", **more} for n in "xy"]
        fields.append({"name": f"r{i}", "type": record(*inner, name=f"R{i}")})
    return fields


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}


def nested_value(depth: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(depth):
        value = {"x": value}
    return value


def unions_of_twins(levels: int) -> Any:
    """At every level two branches take the value, and only at the bottom neither does."""
    fields: list[Any] = []
    branches: list[Any] = ["int", "boolean"]
    for i in range(levels):
        twins = [record({"name": "x", "type": branches}, name=f"{side}{i}") for side in "LR"]
        fields.append({"name": f"t{i}", "type": twins})
        branches = [f"L{i}", f"R{i}"]
    default = nested_value(levels, "neither")
    return record(*fields, {"name": "last", "type": branches, "default": default}, name="Top")


ACCEPTED: dict[str, Any] = {
    "5,000 fields": record(
        *[{"name": f"f{i}", "type": ["null", "long"], "default": None} for i in range(5000)]
    ),
    "a union of 2,000 types": [record(name=f"R{i}") for i in range(2000)],
    "an enum of 50,000 symbols": {**ENUM, "symbols": [f"S{i}" for i in range(50_000)]},
    "types that double": record(*doubling(80, "int")),
    "types that double around null": record(*doubling(80, "null")),
    "defaults that double": record(*doubling(80, ENUM, default=True)),
    "twice the same member": '{"type":"string","type":"record","name":"R","fields":[]}',
    "1e400 as a default": (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e400}]}'
    ),
    "a lone surrogate in a doc": '{"type":"record","name":"R","doc":"\\ud800","fields":[]}',
}


@pytest.mark.seconds
@pytest.mark.parametrize("schema", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted_and_answered_in_time(schema: Any) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with seconds(10):
        everything(parse(text))


def test_a_default_that_every_branch_almost_takes() -> None:
    with seconds(5), pytest.raises(SchemaError, match="is not a value of type"):
        parse(json.dumps(unions_of_twins(30)))


def test_defaults_of_defaults_are_looked_at_once_and_to_the_end() -> None:
    fields = doubling(60, ENUM, default=True)
    reader = record(*fields, {"name": "late", "type": "R59", "default": {}})
    with seconds(5):
        found = check_pair(parse(reader), parse(record(*fields)), Policy.STRICT)
    assert [one.rule for one in found] == ["HW103"]
    chain = record(*doubling(3000, ENUM, default=True))
    more = {**chain, "fields": [*chain["fields"], {"name": "l", "type": "R2999", "default": {}}]}
    found = check_pair(parse(more), parse(chain), Policy.STRICT)
    assert [one.rule for one in found] == ["HW103"]


def test_many_versions_that_all_break_are_all_named_in_bounded_space() -> None:
    def wide(prefix: str) -> Schema:
        return parse(record(*[{"name": f"{prefix}{i}", "type": "int"} for i in range(300)]))

    history = [Version(number, wide("a")) for number in range(1, 101)]
    with seconds(20):
        found = check_level(wide("b"), history, Level.BACKWARD_TRANSITIVE)
    assert len(found) <= 10_100
    assert {one.writer_version for one in found} == set(range(1, 101))


def test_work_for_all_versions_together_is_bounded() -> None:
    many = parse([record({"name": "a", "type": "int"}, name=f"R{i}") for i in range(1000)])
    with seconds(20), pytest.raises(UsageError, match="too large to compare"):
        check_level(many, [Version(n, many) for n in range(1, 1001)], Level.FULL_TRANSITIVE)
    budget = Budget(total=25)
    for _ in range(2):
        budget.next_pair()
        budget.spend(10)
    budget.next_pair()
    with pytest.raises(UsageError, match="for all versions"):
        budget.spend(10)


def test_findings_come_in_one_order() -> None:
    def version(*names: str) -> Schema:
        return parse(record(*[{"name": name, "type": "int"} for name in names]))

    history = [Version(1, version("a", "b")), Version(2, version("c"))]
    new = version("z", "y", "b")
    runs = {
        json.dumps([one.as_dict() for one in check_level(new, order, Level.FULL_TRANSITIVE)])
        for order in (history, history[::-1])
    }
    assert len(runs) == 1
