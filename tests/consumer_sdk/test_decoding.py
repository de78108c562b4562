"""Decoding across schemas: what Avro's resolution says, as objects, and nothing half-read."""

from __future__ import annotations

import io
import json
import pickle
import random
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumer_sdk._event_program import event_decoder
from consumer_sdk._generated_decoder import DATUM_ERRORS, Decode, compiled
from headworks._decoding.primitives import read_long
from headworks._native import COMPILED
from headworks.codec.varints import int64
from headworks.schema import parse
from tests.evolution import as_column, evolution, value_of
from tests.headworks.codec.generated_packages import build

pytestmark = pytest.mark.contract

SLOW = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def as_table_value(found: Any) -> Any:
    """An object as the table value that tests.evolution.as_column gives for the same datum."""
    if hasattr(found, "__headworks__"):
        names = found.__headworks__.fields
        return {field: as_table_value(getattr(found, name)) for field, name in names.items()}
    if isinstance(found, Enum):
        return found.value
    if isinstance(found, list):
        return [as_table_value(item) for item in found]
    if isinstance(found, dict):
        return [(key, as_table_value(value)) for key, value in found.items()]
    return found


class Both:
    """Both forms of a decoder, which must make the same event or raise the same error."""

    def __init__(self, python: Decode, form: Decode) -> None:
        self.python, self.form = python, form
        self.declined = 0

    def __call__(self, data: bytes, start: int) -> Any:
        expected, found = outcome(self.python, data, start), outcome(self.form, data, start)
        assert repr(found) == repr(expected)
        self.declined += isinstance(found, Exception)
        if COMPILED:
            assert self.form.__self__.declined == self.declined  # type: ignore[attr-defined]
        if isinstance(found, Exception):
            raise found
        return found


def outcome(form: Decode, data: bytes, start: int) -> Any:
    try:
        return form(data, start)
    except DATUM_ERRORS as error:
        return error


def decoder(folder: Path, writer: Any, reader: Any) -> Any:
    modules = build(folder, {"reader.avsc": json.dumps(reader)})
    name = reader["name"]
    (module,) = (m for m in modules.values() if hasattr(m, name))
    types = getattr(module, name).__headworks__.types
    schemas = parse(json.dumps(writer)), parse(json.dumps(reader))
    return Both(compiled(*schemas, types), event_decoder(*schemas, types))


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@SLOW
@given(seed=st.integers(0, 2**32))
def test_evolved_data_comes_as_fastavro_resolves_it(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer, reader = evolution(chance)
    decode = decoder(tmp_path, writer, reader)
    for _ in range(4):
        data = written(writer, value_of(writer, chance))
        expected = fastavro.schemaless_reader(
            io.BytesIO(data), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        )
        assert as_table_value(decode(b"12345" + data, 5)) == as_column(reader, expected)


@SLOW
@given(seed=st.integers(0, 2**32))
def test_damaged_data_is_refused_or_read_but_never_hangs(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer, reader = evolution(chance)
    decode = decoder(tmp_path, writer, reader)
    data = written(writer, value_of(writer, chance))
    for _ in range(20):
        damaged = bytearray(data or b"\x00")
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        for bad in (bytes(damaged), bytes(damaged[: chance.randrange(len(damaged) + 1)])):
            try:
                decode(bad, 0)
            except DATUM_ERRORS:
                continue
    with pytest.raises(DATUM_ERRORS):
        decode(data + b"\x00", 0)


TREE = {
    "type": "record",
    "name": "Tree",
    "namespace": "wood",
    "fields": [
        {"name": "label", "type": "string"},
        {"name": "kids", "type": {"type": "array", "items": "Tree"}},
        {"name": "by", "type": {"type": "map", "values": ["null", "Tree"]}, "default": {}},
    ],
}


def test_records_that_hold_themselves(tmp_path: Path) -> None:
    evolved = json.loads(json.dumps(TREE))
    evolved["fields"].append({"name": "age", "type": "int", "default": 3})
    decode = decoder(tmp_path, TREE, evolved)
    leaf = {"label": "leaf", "kids": [], "by": {}}
    data = written(TREE, {"label": "root", "kids": [leaf, leaf], "by": {"n": None, "l": leaf}})
    tree = decode(data, 0)
    assert [kid.label for kid in tree.kids] == ["leaf", "leaf"]
    assert (tree.age, tree.by["n"], tree.by["l"].age) == (3, None, 3)
    deep = b"\x02a\x02" * 100_000
    with pytest.raises(RecursionError):
        decode(deep, 0)


def test_a_default_that_can_be_changed_is_every_events_own(tmp_path: Path) -> None:
    writer = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x"]}
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int", "default": 1}]}
    place = {"name": "place", "type": inner, "default": {}}
    reader = {**writer, "fields": [*writer["fields"], tags, place]}
    decode = decoder(tmp_path, writer, reader)
    one, two = decode(b"\x02", 0), decode(b"\x02", 0)
    one.tags.append("y")
    one.place.n = 9
    assert (two.tags, two.place.n) == (["x"], 1)


def test_arrays_nested_deeper_than_python_nests_loops(tmp_path: Path) -> None:
    deep: Any = "int"
    value: Any = 7
    for _ in range(24):
        deep, value = {"type": "array", "items": deep}, [value]
    schema = {"type": "record", "name": "Deep", "fields": [{"name": "a", "type": deep}]}
    assert decoder(tmp_path, schema, schema)(written(schema, {"a": value}), 0).a == value


def test_items_without_bytes_do_not_fill_the_memory(tmp_path: Path) -> None:
    array = {"type": "array", "items": "null"}
    schema = {"type": "record", "name": "N", "fields": [{"name": "a", "type": array}]}
    decode = decoder(tmp_path, schema, schema)
    assert decode(b"\x06\x00", 0).a == [None] * 3
    with pytest.raises(ValueError, match="too many items"):
        decode(b"\xfe\xff\xff\xff\x0f\x00", 0)
    array["items"] = {"type": "array", "items": "null"}  # type: ignore[assignment]
    decode = decoder(tmp_path / "nested", schema, schema)
    inner = b"\xbe\x9a\x0c\x00"  # an array of 99,999 nulls
    for _ in range(2):  # what one datum had is not held against the next
        assert len(decode(b"\x02" + inner + b"\x00", 0).a[0]) == 99_999
    with pytest.raises(ValueError, match="too many items"):
        decode(b"\x04" + inner * 2 + b"\x00", 0)


def test_a_symbol_that_the_reader_does_not_know(tmp_path: Path) -> None:
    def schema(**enum: Any) -> dict[str, Any]:
        kind = {"type": "enum", "name": "Kind", **enum}
        return {"type": "record", "name": "S", "fields": [{"name": "k", "type": kind}]}

    writer = schema(symbols=["A", "B"])
    with_default = decoder(tmp_path / "one", writer, schema(symbols=["A"], default="A"))
    assert with_default(b"\x02", 0).k.value == "A"
    without = decoder(tmp_path / "two", writer, schema(symbols=["A"]))
    assert without(b"\x00", 0).k.value == "A"
    with pytest.raises(ValueError, match="no symbol 'B', and no default"):
        without(b"\x02", 0)


def _of_one_field(folder: Path, kind: Any) -> Any:
    schema = {"type": "record", "name": "One", "fields": [{"name": "f", "type": kind}]}
    return decoder(folder, schema, schema)


def _varint(number: int, padding: int = 0) -> bytes:
    """A zig-zag varint, with so many needless bytes at its end."""
    number = number << 1 ^ number >> 63
    digits = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    digits += [0] * padding
    return bytes([digit | 128 for digit in digits[:-1]] + digits[-1:])


@given(n=st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**42))
def test_numbers_of_every_length(n: int) -> None:
    data = _varint(n)
    assert int64(n) == data
    if len(data) > 1:
        assert read_long(data, 1, data[0]) == (n, len(data))


def test_a_number_has_no_more_than_64_bits() -> None:
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_long(b"\x80" * 10 + b"\x00", 1, 128)
    with pytest.raises(ValueError, match="more than 64 bits"):
        read_long(b"\xff" * 9 + b"\x02", 1, 255)
    assert read_long(b"\xff" * 9 + b"\x01", 1, 255) == (-(2**63), 10)


def test_lengths_and_branches_written_with_needless_bytes(tmp_path: Path) -> None:
    decode = _of_one_field(tmp_path, ["null", "string"])
    for size in (0, 1, 63, 64, 8_191, 8_192):
        for padding in (0, 1, 2):
            data = _varint(1, padding) + _varint(size, padding) + b"x" * size
            assert decode(data, 0).f == "x" * size
    assert decode(_varint(0, 1), 0).f is None
    for branch in (2, -1, 64, -64):
        with pytest.raises(ValueError, match=f"^{branch} is no branch"):
            decode(_varint(branch), 0)
    for data in (_varint(1) + _varint(-70), _varint(1) + _varint(-1)):
        with pytest.raises(ValueError, match="a length is negative"):
            decode(data, 0)


@SLOW
@given(text=st.uuids().map(str) | st.text("0123456789abcdefABCDEF-{}_ urnuid:\u0663", max_size=40))
def test_a_uuid_is_parsed_as_python_parses_it(tmp_path: Path, text: str) -> None:
    decode = _of_one_field(tmp_path, {"type": "string", "logicalType": "uuid"})
    data = _varint(len(text.encode())) + text.encode()
    try:
        expected = UUID(text)
    except ValueError:
        with pytest.raises(DATUM_ERRORS):
            decode(data, 0)
        return
    found = decode(data, 0).f
    assert (found, found.is_safe) == (expected, expected.is_safe)
    assert pickle.loads(pickle.dumps(found)) == expected


@SLOW
@given(
    micros=st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
    | st.integers(0, 2**33 * 1_000_000)
    | st.integers((2**32 - 1) * 1_000_000, (2**32 + 1) * 1_000_000)
)
def test_an_instant_is_exact_to_the_microsecond(tmp_path: Path, micros: int) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for unit, number in (("micros", micros), ("millis", micros // 1_000)):
        decode = _of_one_field(
            tmp_path / unit, {"type": "long", "logicalType": f"timestamp-{unit}"}
        )
        found = decode(_varint(number), 0).f
        since = micros if unit == "micros" else number * 1_000
        assert found == epoch + timedelta(0, since // 1_000_000, since % 1_000_000)
        assert found.tzinfo is UTC
