"""Schemas and data that would take all memory, all time, or the process, if they were believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk._decode import DecodeError, Decoder
from consumer_sdk._event_program import event_decoder
from consumer_sdk._generated_decoder import compiled
from headworks._audit.increments import IncrementDecoder
from headworks._decoding.datum_check import DatumCheck
from headworks._decoding.plain_values import PlainDecoder
from headworks._decoding.primitives import BadDatumError, skipper
from headworks._native import COMPILED
from headworks._wire import HEADER_SIZE, prefix
from headworks.errors import CorruptError
from headworks.registry_client import RegistryClient
from headworks.schema import parse
from tests.headworks.codec.generated_packages import build
from tests.headworks.decoding.test_compiled_decoder import varint

pytestmark = pytest.mark.unit

Json = Any
LINK = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "next", "type": ["null", "Link"]}],
}
EMPTIES = {
    "type": "record",
    "name": "Empties",
    "fields": [{"name": "items", "type": {"type": "array", "items": "null"}}],
}
ENDLESS = b"\x02" * 1_000_000 + b"\x00"  # of LINK
COUNTED = varint(2_000_000_000) + b"\x00"  # of EMPTIES


def doubling(steps: int, leaf: Json, *, optional: bool = False) -> Json:
    """Records that hold the next one twice: 2**steps places in a few lines."""
    made: Json = {"type": "record", "name": f"R{steps}", "fields": [{"name": "x", "type": leaf}]}
    for n in reversed(range(steps)):
        kinds = (made, f"R{n + 1}")
        made = {
            "type": "record",
            "name": f"R{n}",
            "fields": [
                {"name": name, "type": ["null", kind] if optional else kind}
                for name, kind in zip("ab", kinds, strict=True)
            ],
        }
    return made


@pytest.mark.parametrize(
    ("schema", "datum", "reason"),
    [(LINK, ENDLESS, "250 values inside each other"), (EMPTIES, COUNTED, "take no bytes")],
)
def test_no_reader_without_classes_takes_data_at_their_word(
    schema: Json, datum: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegistryClient, "schema_text", lambda *_: json.dumps(schema))
    registry = RegistryClient("http://127.0.0.1:1")
    with pytest.raises(BadDatumError, match=reason):
        PlainDecoder(json.dumps(schema), json.dumps(schema)).decode(datum)
    with pytest.raises(DecodeError, match=reason):
        Decoder(registry, "orders").decode(prefix(7) + datum)
    with pytest.raises(CorruptError, match="not an audit event"):
        IncrementDecoder(registry)(prefix(7) + datum)


def test_a_place_inside_many_records_is_told_by_its_ends() -> None:
    with pytest.raises(BadDatumError) as caught:
        PlainDecoder(json.dumps(LINK)).decode(ENDLESS)
    told = str(caught.value)
    assert told.startswith("byte 250 of field next.next.")
    assert ".." in told
    assert len(told) < 250


def test_plain_values_are_those_of_fastavro() -> None:
    decoder = PlainDecoder(json.dumps(LINK))
    assert decoder.decode(b"12\x02\x02\x00", 2) == {"next": {"next": {"next": None}}}
    wider = PlainDecoder('"int"', '["null", "long"]')
    assert wider.decode(b"\x0e") == 7
    with pytest.raises(BadDatumError, match="byte 1: 1 bytes are left"):
        wider.decode(b"\x0e\x00")
    with pytest.raises(BadDatumError, match="ends too early"):
        wider.decode(b"")


@pytest.mark.parametrize("compiled_check", [False, COMPILED])
def test_a_check_of_such_a_schema_judges_its_data(*, compiled_check: bool) -> None:
    check = DatumCheck(
        parse(json.dumps(doubling(50, "int", optional=True))), compiled=compiled_check
    )
    check.prepare()
    check.require_datum(b"\x00\x00", 0)
    check.require_datum(b"\x02\x00\x00\x02\x02\x00\x00\x00", 0)
    with pytest.raises(BadDatumError, match=r"byte 3 of field a\.b"):
        check.require_datum(b"\x02\x00\x02\x04\x00", 0)


def test_values_without_bytes_cost_nothing() -> None:
    schema = parse(json.dumps(doubling(60, "null")))
    assert skipper(schema)(b"", 0, 0) == 0
    for compiled_check in (False, COMPILED):
        with pytest.raises(BadDatumError, match="takes no bytes, and has more than 1,000 values"):
            DatumCheck(schema, compiled=compiled_check).require_datum(b"", 0)
    few = DatumCheck(parse(json.dumps(doubling(8, "null"))))
    few.require_datum(b"", 0)
    beside = {
        "type": "record",
        "name": "Beside",
        "fields": [{"name": "many", "type": doubling(60, "null")}, {"name": "n", "type": "int"}],
    }
    only = {**beside, "fields": [{"name": "n", "type": "int"}]}
    DatumCheck(parse(json.dumps(only))).require_datum(b"\x0e", 0)


def test_classes_read_a_record_in_all_its_places(tmp_path: Path) -> None:
    place = {"type": "record", "name": "Place", "fields": [{"name": "n", "type": "int"}]}
    fields = [
        {"name": "first", "type": place},
        {"name": "second", "type": "Place"},
        {"name": "third", "type": ["null", "Place"]},
        {"name": "more", "type": {"type": "array", "items": "Place"}},
        {"name": "named", "type": {"type": "map", "values": "Place"}},
    ]
    text = {"type": "record", "name": "Trip", "fields": fields}
    modules = build(tmp_path, {"trip.avsc": json.dumps(text)})
    (module,) = (one for one in modules.values() if hasattr(one, "Trip"))
    kind = module.Trip.__headworks__
    trip = module.Trip(
        first=module.Place(n=1),
        second=module.Place(n=2),
        third=module.Place(n=3),
        more=[module.Place(n=4), module.Place(n=5)],
        named={"a": module.Place(n=6)},
    )
    data, both = prefix(7) + kind.encode(trip), parse(kind.schema)
    for form in (compiled, event_decoder):
        assert form(both, both, kind.types)(data, HEADER_SIZE) == trip


def test_a_class_reads_data_of_a_schema_with_as_many_places(tmp_path: Path) -> None:
    text = json.dumps(doubling(50, "int", optional=True))
    modules = build(tmp_path, {"many.avsc": text})
    (module,) = (one for one in modules.values() if hasattr(one, "R0"))
    kind = module.R0.__headworks__
    both = parse(kind.schema)
    event = module.R0(a=module.R1(a=None, b=None), b=module.R1(a=None, b=module.R2(a=None, b=None)))
    data = kind.encode(event)
    for form in (compiled, event_decoder):
        assert form(both, both, kind.types)(data, 0) == event
