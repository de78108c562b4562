"""The verdict on a datum: the compiled one, the one that gives reasons, and the loader's."""

from __future__ import annotations

import json
import random
import threading
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._decoding.datum_check import MAX_NESTING, BadDatum, DatumCheck
from headworks._native import COMPILED
from headworks.schema import parse
from tests.consumer_sdk.test_decoding import written
from tests.evolution import evolution, value_of
from tests.headworks.decoding.damaged_data import damaged
from tests.soak.decoders import compare_verdicts
from tests.tools import needs

pytestmark = pytest.mark.unit

Json = Any
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "below", "type": {"type": "map", "values": "Tree"}}],
}
LINK = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "next", "type": ["null", "Link"]}],
}


def check(schema: Json, *data: bytes, compiled: bool = COMPILED) -> list[tuple[int, BadDatum]]:
    ends = [sum(map(len, data[: i + 1])) for i in range(len(data))]
    spans = [at for end, datum in zip(ends, data, strict=True) for at in (end - len(datum), end)]
    judge = DatumCheck(parse(json.dumps(schema)), compiled=compiled)
    found = judge.find_bad(b"".join(data), _numbers([7] * len(data)), _numbers(spans), 7, 99)
    again = judge.find_bad(b"".join(data), _numbers([8] * len(data)), _numbers(spans), 7, 99)
    assert again == []
    return found


def _numbers(numbers: list[int]) -> bytes:
    return array("q", numbers).tobytes()


def in_both_forms(schema: Json, *data: bytes) -> list[tuple[int, BadDatum]]:
    found = check(schema, *data, compiled=False)
    if COMPILED:
        assert check(schema, *data) == found
    return found


@given(st.integers(0, 2**32))
def test_it_is_the_loader_s_verdict(seed: int) -> None:
    chance = random.Random(seed)
    for schema in evolution(chance):
        good = [written(schema, value_of(schema, chance)) for _ in range(4)]
        data = good + [damaged(chance, chance.choice(good)) for _ in range(30)]
        compare_verdicts(schema, data)
        assert all(number >= len(good) for number, _ in in_both_forms(schema, *data))


def field(kind: Json, name: str = "f") -> Json:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "datum", "byte", "path", "reason"),
    [
        (field("int"), b"", 0, "f", "ends too early"),
        (field("int"), b"\x02\x02", 1, "", "1 bytes are left"),
        (field("int"), b"\x80\x80\x80\x80\x20", 0, "f", "more than 32 bits"),
        (field("boolean"), b"\x02", 0, "f", "2 is not a boolean"),
        (field("string"), b"\x04\xff\xff", 0, "f", "not UTF-8"),
        (field("string"), b"\x01", 0, "f", "length is negative"),
        (field("string"), b"\x7eabc", 0, "f", "ends too early"),
        (field(["null", "int"]), b"\x04", 0, "f", "2 is no branch"),
        (field({"type": "enum", "name": "E", "symbols": ["A"]}), b"\x02", 0, "f", "no symbol"),
        (field(field("boolean", "inner") | {"name": "I"}), b"\x03", 0, "f.inner", "boolean"),
        (field({"type": "array", "items": "null"}), b"\xc2\x9a\x0c\x00", 0, "f", "too many"),
        (field({"type": "array", "items": "int"}), b"\x06\x00", 0, "f", "ends too early"),
        (field({"type": "map", "values": "int"}), b"\x04\x02a\x00\x02a\x00\x00", 4, "f", "twice"),
        (
            field({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}),
            b"\x02\x64",
            0,
            "f",
            "more than 2 digits",
        ),
        (
            field({"type": "long", "logicalType": "timestamp-millis"}),
            b"\xfe" + b"\xff" * 8 + b"\x01",
            0,
            "f",
            "no time",
        ),
    ],
)
def test_it_says_where_and_why(
    schema: Json, datum: bytes, byte: int, path: str, reason: str
) -> None:
    ((number, bad),) = in_both_forms(schema, datum)
    assert (number, bad.byte, bad.field) == (0, byte, path)
    assert reason in bad.reason
    assert str(bad).startswith(f"byte {byte}")


def test_keys_of_maps_inside_maps_are_compared_with_their_own_map_only() -> None:
    leaf, empty = b"\x02a\x00", b"\x00"
    inside = b"\x02" + leaf + empty  # {"a": {}}
    good = b"\x04\x02b" + inside + b"\x02c" + inside + empty
    twice = b"\x04\x02b" + inside + b"\x02b" + inside + empty
    assert [number for number, _ in in_both_forms(TREE, good, twice, good)] == [1]


@pytest.mark.parametrize("more", [0, 1])
def test_nesting_ends_at_the_same_depth_in_both_forms(more: int) -> None:
    datum = b"\x02" * (MAX_NESTING - 1 + more) + b"\x00"
    found = in_both_forms(LINK, datum)
    assert [bad.reason for _, bad in found] == [
        f"the datum has more than {MAX_NESTING} values inside each other"
    ][:more]


@needs("extensions")
def test_threads_share_a_check() -> None:
    judge = DatumCheck(parse(json.dumps(field("string"))))
    good, bad = b"\x06abc", b"\x08abc"
    data = good * 20_000 + bad
    ids = _numbers([7] * 20_001)
    spans = _numbers([at for i in range(20_001) for at in (4 * i, 4 * i + 4)])
    found: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(judge.find_bad(data, ids, spans, 7, 99) for _ in range(20))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all([number for number, _ in one] == [20_000] for one in found)
