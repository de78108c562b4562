"""The shapes of column types, and the lengths of their texts."""

from __future__ import annotations

import json

import pytest

from headworks.compatibility import _columns
from headworks.compatibility._columns import TypeLengths, one_type
from headworks.schema import Schema, parse

pytestmark = pytest.mark.unit

NULLS = ["null"]
COLUMN = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": NULLS},
        {"name": "b", "type": {"type": "array", "items": NULLS}},
        {"name": "c", "type": {"type": "map", "values": []}},
        {"name": "d", "type": ["null", "int", "long"]},
    ],
}


def test_the_length_of_a_type_without_values_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types are remembered by their id, so none may be made for the question alone."""
    kept: list[Schema] = []

    def keeping(schema: Schema) -> Schema:
        kept.append(one_type(schema))  # no later object gets its id
        return kept[-1]

    monkeypatch.setattr(_columns, "one_type", keeping)
    length = TypeLengths().of(parse(json.dumps(COLUMN)))
    nothing = _columns.shape(parse('"null"'))
    text = f"struct<a:{nothing},b:array<{nothing}>,c:map<string,{nothing}>,d:bigint>"
    assert length == len(text)


@pytest.mark.parametrize("branches", [[], NULLS, ["null", "int"], ["int", "long"]])
def test_a_union_has_one_type(branches: list[str]) -> None:
    union = parse(json.dumps(branches))
    assert one_type(union) is one_type(union)
