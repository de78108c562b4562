"""Levels: which versions are compared, in which direction, and which are named."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headworks.compatibility import Level, Policy, Version, check_level, check_pair
from headworks.errors import UsageError
from headworks.schema import Field, Record, Schema, parse

pytestmark = pytest.mark.unit


def event(*fields: dict[str, Any]) -> Schema:
    return parse(json.dumps({"type": "record", "name": "R", "fields": list(fields)}))


A: dict[str, Any] = {"name": "a", "type": "int"}
B: dict[str, Any] = {"name": "b", "type": "int"}
B_DEFAULT: dict[str, Any] = {**B, "default": 0}
HISTORY = [Version(1, event(A)), Version(2, event(A, B_DEFAULT)), Version(4, event(A, B_DEFAULT))]


@pytest.mark.parametrize(
    ("level", "new", "versions"),
    [
        (Level.NONE, event(B), []),
        (Level.BACKWARD, event(A, B), []),
        (Level.BACKWARD_TRANSITIVE, event(A, B), [(None, 1)]),
        (Level.FORWARD, event(B), [(4, None)]),
        (Level.FORWARD_TRANSITIVE, event(B), [(4, None), (2, None), (1, None)]),
        (Level.FULL, event(A, B), []),
        (Level.FULL_TRANSITIVE, event(A, B), [(None, 1)]),
        (Level.FULL_TRANSITIVE, event(A), []),
    ],
)
def test_levels_name_every_failing_version(
    level: Level, new: Schema, versions: list[tuple[int | None, int | None]]
) -> None:
    found = check_level(new, HISTORY, level, Policy.AVRO)
    assert [(one.reader_version, one.writer_version) for one in found] == versions


def test_no_history_is_compatible() -> None:
    assert check_level(event(A), [], Level.FULL_TRANSITIVE, Policy.WAREHOUSE) == []


def test_a_first_version_has_columns_that_a_table_can_have() -> None:
    first = event({"name": "n" * 768, "type": "int"}, {"name": "_load", "type": "int"})
    found = check_level(first, [], Level.BACKWARD, Policy.WAREHOUSE)
    assert [one.rule for one in found] == ["HW206", "HW207"]
    assert check_level(first, [], Level.BACKWARD, Policy.STRICT) == []
    assert check_level(first, [], Level.NONE, Policy.WAREHOUSE) == []


def test_the_message_names_the_side_that_can_still_change() -> None:
    backward = check_level(event(A, B), HISTORY[:1], Level.BACKWARD)[0]
    assert backward.message.startswith("Consumers on the proposed schema cannot read data written")
    assert "version 1" in backward.message
    forward = check_level(event(B), HISTORY[:1], Level.FORWARD)[0]
    assert forward.message.startswith("Consumers on version 1 cannot read data written with the")
    assert forward.fix.startswith('keep "a"')


def test_a_table_follows_whatever_the_direction() -> None:
    old = [Version(1, event({"name": "a", "type": "long"}))]
    new = event({"name": "a", "type": "double"})
    found = check_level(new, old, Level.FORWARD, Policy.WAREHOUSE)
    assert [one.rule for one in found] == ["HW002", "HW201"]
    assert found[1].writer_version == 1


def test_levels_and_policies_are_read_in_any_case() -> None:
    assert Level.read("backward_transitive") is Level.BACKWARD_TRANSITIVE
    assert Policy.read("Warehouse") is Policy.WAREHOUSE
    with pytest.raises(UsageError, match="not a compatibility level"):
        Level.read("SIDEWAYS")
    with pytest.raises(UsageError, match="not a compatibility policy"):
        Policy.read("hive")


def chain(length: int, last: str, prefix: str) -> Schema:
    """Flat in the text, `length` records deep in the walk: only the last field has a partner."""
    fields: list[Any] = []
    for i in range(length):
        inner = [{"name": "x", "type": f"R{i - 1}" if i else last}]
        type_ = {"type": "record", "name": f"R{i}", "fields": inner}
        fields.append({"name": f"{prefix}{i}" if i < length - 1 else "last", "type": type_})
    return event(*fields)


@pytest.mark.seconds
def test_depth_neither_hangs_nor_overflows() -> None:
    left, right = chain(3000, "int", "a"), chain(3000, "string", "b")
    before = time.process_time()
    for policy in Policy:
        found = check_pair(left, right, policy)
        assert "HW002" in {one.rule for one in found}
    assert time.process_time() - before < 20


def test_wide_records_and_doubling_types_are_bounded() -> None:
    wide = [{"name": f"f{i}", "type": ["null", "long"], "default": None} for i in range(5000)]
    assert check_pair(event(*wide), event(*wide[:-1]), Policy.WAREHOUSE) == []
    doubling: list[Any] = [{"type": "record", "name": "R0", "fields": [A]}]
    for i in range(1, 60):
        fields = [{"name": n, "type": f"R{i - 1}"} for n in "xy"]
        doubling.append({"type": "record", "name": f"R{i}", "fields": fields})
    broken = json.loads(json.dumps(doubling))
    broken[0]["fields"][0]["type"] = "string"
    found = check_pair(parse(json.dumps(doubling)), parse(json.dumps(broken)), Policy.STRICT)
    assert len(found) == 1


@pytest.mark.parametrize("alias", ["z", "b0"])
@pytest.mark.parametrize("level", [Level.BACKWARD, Level.FORWARD])
def test_the_fields_of_a_record_are_not_walked_once_for_each_of_them(
    level: Level, alias: str
) -> None:
    class Walked(tuple[Field, ...]):
        walks = 0

        def __iter__(self) -> Iterator[Field]:
            Walked.walks += 1
            return super().__iter__()

    renamed = ({"name": f"a{i}", "type": "int", "aliases": [alias]} for i in range(500))
    new = event(*renamed)
    old = event(*({"name": f"b{i}", "type": "int"} for i in range(500)))
    for one in (new, old):
        assert isinstance(one, Record)
        one.fields = Walked(one.fields)
    found = check_level(new, [Version(1, old)], level, Policy.WAREHOUSE)
    assert len(found) >= 500
    assert Walked.walks < 20


@pytest.mark.seconds
def test_work_is_limited() -> None:
    def union(kind: str, size: int) -> Schema:
        fields = [{"name": f"f{i}", "type": kind} for i in range(size // 2)]
        return parse(
            json.dumps([{"type": "record", "name": f"R{i}", "fields": fields} for i in range(size)])
        )

    with pytest.raises(UsageError, match="too large to compare"):
        check_pair(union("int", 300), union("int", 300))
