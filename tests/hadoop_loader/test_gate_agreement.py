"""The gate's verdict on a table is the loader's: for every pair of types, in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from hadoop_loader._tables.columns import FILE_COLUMNS, PARTITION_COLUMN, table_columns
from hadoop_loader._tables.widening import widen
from headworks.compatibility import Level, Policy, Version, check_level
from headworks.compatibility._budget import Budget
from headworks.compatibility._hive import RESERVED_COLUMNS, table_findings
from headworks.errors import IncompatibleError
from headworks.schema import Record, Schema, parse

pytestmark = pytest.mark.unit

Json = Any


def logical(kind: str, logical_type: str, **more: Json) -> Json:
    return {"type": kind, "logicalType": logical_type, **more}


def decimal(precision: int, scale: int) -> Json:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def record(*fields: tuple[str, Json]) -> Json:
    return {"type": "record", "name": "N", "fields": [{"name": n, "type": t} for n, t in fields]}


TYPES: list[Json] = [
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    logical("int", "date"),
    logical("int", "time-millis"),
    logical("long", "time-micros"),
    logical("long", "timestamp-millis"),
    logical("long", "timestamp-micros"),
    logical("long", "local-timestamp-millis"),
    logical("long", "local-timestamp-micros"),
    logical("long", "timestamp-nanos"),
    logical("long", "local-timestamp-nanos"),
    logical("string", "uuid"),
    logical("fixed", "uuid", name="U", size=16),
    *(decimal(9, 3), decimal(10, 3), decimal(10, 4), decimal(12, 4), decimal(39, 3)),
    logical("fixed", "decimal", name="D", size=8, precision=9, scale=3),
    {"type": "fixed", "name": "F", "size": 4},
    logical("fixed", "duration", name="L", size=12),
    {"type": "enum", "name": "E", "symbols": ["a"]},
    *(["null", "int"], ["null", "long"], ["int", "long"], ["float", "double"]),
    *(["null", "int", "string"], ["null", "int", "string", "bytes"]),
    *({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
    *({"type": "map", "values": "int"}, {"type": "map", "values": ["null", "double"]}),
    *(record(), record(("x", "int")), record(("x", "double"), ("y", "int"))),
]
# The gate refuses two changes that files could follow, because the values would mean another thing:
# a time of day in no zone as an instant, and a union that loses a type.
OTHER_MEANING = {"HW201": "timestamp", "HW204": "union"}


def field(kind: Json) -> Schema:
    fields = [{"name": "a", "type": kind}]
    return parse(json.dumps({"type": "record", "name": "R", "fields": fields}), strict=False)


def event(kind: Json) -> Schema:
    return parse(json.dumps(kind), strict=False)


def followed(old: Schema, new: Schema) -> bool:
    try:
        widen(table_columns(old), table_columns(new))
    except IncompatibleError:
        return False
    return True


@pytest.mark.parametrize("schema", [field, event])
def test_the_gate_passes_no_change_that_a_table_cannot_follow(
    schema: Callable[[Json], Schema],
) -> None:
    stricter = set()
    for pair in product(TYPES, repeat=2):
        old, new = map(schema, pair)
        if isinstance(old, Record) is not isinstance(new, Record):
            continue  # old rows would not be in the new columns
        found = table_findings(new, old, Budget())
        if not found:
            assert followed(old, new), pair
        elif followed(old, new):
            (finding,) = found
            assert OTHER_MEANING[finding.rule] in finding.message, finding.message
            stricter.add(finding.rule)
    assert stricter == set(OTHER_MEANING)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (record(("n", ["null", "N"])), "HW203"),
        (record(*((f"number_{n}", "long") for n in range(5000))), "HW207"),
        (record(("a", "int"), ("A", "int")), "HW202"),
    ],
)
def test_a_first_version_that_no_table_can_hold_is_refused_whatever_its_root(
    kind: Json, rule: str
) -> None:
    for root in ({"type": "array", "items": kind}, {"type": "map", "values": kind}, ["null", kind]):
        found = check_level(event(root), [], Level.BACKWARD, Policy.WAREHOUSE)
        assert {one.rule for one in found} == {rule}


def test_a_record_does_not_become_another_type() -> None:
    one, other = event(record(("x", "int"))), event(["null", record(("x", "int"))])
    for new, old in ((one, other), (other, one)):
        found = check_level(new, [Version(1, old)], Level.FULL, Policy.WAREHOUSE)
        assert "HW201" in {finding.rule for finding in found}
    assert not check_level(other, [Version(1, one)], Level.BACKWARD, Policy.STRICT)


def test_the_gate_reserves_the_columns_that_the_loader_adds() -> None:
    assert {PARTITION_COLUMN, *(column.name for column in FILE_COLUMNS)} == RESERVED_COLUMNS
