"""Events without a generated class: what does not fit is named in a line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headworks.errors import UsageError
from producer_sdk._untyped import UntypedEvent, event_class

pytestmark = pytest.mark.unit

WAY = {"type": "record", "name": "Way", "fields": [{"name": "km", "type": "int"}]}
TRIP = {
    "type": "record",
    "name": "Trip",
    "namespace": "acme",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "how", "type": "string", "default": "by train"},
        {"name": "way", "type": ["null", WAY], "default": None},
        {"name": "when", "type": ["null", "int", "string"], "default": None},
        {
            "name": "left",
            "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
            "default": None,
        },
    ],
}


@pytest.fixture(scope="module")
def trip() -> type[UntypedEvent]:
    return event_class("trips", json.dumps(TRIP))


def test_what_has_a_default_may_be_left_out(trip: type[UntypedEvent]) -> None:
    whole = {"id": 1, "how": "by train", "way": None, "when": None, "left": None}
    encode = trip.__headworks__.encode
    assert encode(trip({"id": 1})) == encode(trip(whole))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "acme.Trip.id is missing, and has no default"),
        ({"id": 1, "way": {}}, "acme.Way.km is missing, and has no default"),
        ({"id": 1, "nope": 2}, "acme.Trip has no field 'nope'"),
        ({"id": "x"}, "acme.Trip.id is 'x', expected long"),
        ({"id": 1, "way": {"km": None}}, "acme.Way.km is None, expected int"),
        ({"id": 1, "when": 1.5}, "acme.Trip.when is 1.5, expected null or int or string"),
        ({"id": 1, "left": "noon"}, "acme.Trip.left is 'noon', expected timestamp-millis"),
        ([1], "it is [1], expected acme.Trip"),
    ],
)
def test_what_does_not_fit_is_named_in_a_line(
    trip: type[UntypedEvent], value: Any, why: str
) -> None:
    with pytest.raises(UsageError) as error:
        trip.__headworks__.encode(trip(value))
    assert error.value.message == f"the event does not fit the schema of trips: {why}"


def test_an_event_of_a_union_is_named_or_fits_one_branch() -> None:
    def branch(name: str, **more: Any) -> dict[str, Any]:
        fields = [{"name": "n", "type": "int"}, {"name": "why", "type": "string", **more}]
        governed = {"topic": "t", "key": ["n"]}
        return {"type": "record", "name": name, "fields": fields, "headworks": governed}

    kind = event_class("t", json.dumps([branch("a.One"), branch("a.Two", default="")]))
    encode, key = kind.__headworks__.encode, kind.__headworks__.key
    assert encode(kind({"n": 1})) == encode(kind({"a.Two": {"n": 1}})) == bytes([2, 2, 0])
    named = kind({"a.One": {"n": 1, "why": "x"}})
    assert encode(named) == bytes([0, 2, 2]) + b"x"
    assert key is not None
    assert key(named) == b"1"
    for plain, why in (
        ({"n": 1, "why": "x"}, r'it is a a.One or a.Two: write \{"a.One": \{...\}\}'),
        ({"m": 1}, "whether it is a a.One or a.Two"),
        ({"a.One": {"n": 1}}, "a.One.why is missing"),
    ):
        with pytest.raises(UsageError, match=why):
            encode(kind(plain))


def test_an_event_inside_itself_too_many_times_is_told() -> None:
    link = {
        "type": "record",
        "name": "Link",
        "fields": [{"name": "next", "type": ["null", "Link"], "default": None}],
    }
    cls = event_class("links", json.dumps(link))
    value: Any = {}
    for _ in range(900):
        value = {"next": value}
    with pytest.raises(UsageError, match="the event of links is nested too deeply"):
        cls.__headworks__.encode(cls(value))
