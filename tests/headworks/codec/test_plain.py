"""Events as dicts and JSON: there and back, with pydantic and FastAPI, and what is refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from headworks.codec import EncodeError, from_dict, from_json, to_dict, to_json
from tests.headworks.codec.generated_packages import build

pytestmark = pytest.mark.unit

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "class", "type": "string"}, {"name": "price", "type": PRICE}],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "hour", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "USED"]}},
    {"name": "lines", "type": {"type": "array", "items": LINE}},
    {"name": "by_name", "type": {"type": "map", "values": "long"}},
    {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
    {"name": "rate", "type": "double"},
    {"name": "either", "type": ["null", "long", "string", "Line"], "default": None},
    {"name": "note", "type": "string", "default": "none"},
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    schema = {"type": "record", "name": "shop.Order", "fields": FIELDS}
    governed = {**schema, "headworks": {"topic": "orders", "event_time": "at"}}
    folder: Path = tmp_path_factory.mktemp("classes")
    return build(folder, {"order.avsc": json.dumps(governed)})["shop"]


def order(shop: ModuleType, **more: Any) -> Any:
    given = {
        "id": UUID(int=7),
        "at": datetime(2026, 5, 1, 12, tzinfo=UTC),
        "local": datetime(2026, 5, 1, 14, 0, 0, 5),  # noqa: DTZ001
        "day": date(2026, 5, 1),
        "hour": time(14, 30),
        "kind": shop.Kind.USED,
        "lines": [shop.Line(class_="book", price=Decimal("12.50"))],
        "by_name": {"ada": 3},
        "raw": b"\xff\x00",
        "rate": 0.5,
    }
    return shop.Order(**{**given, **more})


def test_a_dict_has_the_names_of_the_schema_and_plain_records(shop: ModuleType) -> None:
    found = to_dict(order(shop, either=shop.Line(class_="pen", price=Decimal("1.00"))))
    assert found["lines"] == [{"class": "book", "price": Decimal("12.50")}]
    assert found["either"] == {"class": "pen", "price": Decimal("1.00")}
    assert found["kind"] == "USED"
    assert type(found["kind"]) is str
    assert found["at"] == datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert to_dict(shop.Line(class_="pen", price=Decimal(1))) == {"class": "pen", "price": 1}


@pytest.mark.parametrize("either", [None, 5, "five", {"class": "pen", "price": "1.00"}])
def test_there_and_back_is_the_same_event(shop: ModuleType, either: Any) -> None:
    event = order(shop)
    event = from_dict(shop.Order, {**to_dict(event), "either": either})
    assert from_dict(shop.Order, to_dict(event)) == event
    assert from_json(shop.Order, to_json(event)) == event
    assert from_json(shop.Order, to_json(event, indent=2).encode()) == event


def test_json_is_what_any_parser_reads(shop: ModuleType) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found = json.loads(to_json(order(shop, rate=-math.inf)), parse_constant=refuse)
    assert found["rate"] == "-Infinity"
    assert found["raw"] == "\xff\x00"
    assert found["at"] == "2026-05-01T12:00:00+00:00"
    assert found["id"] == "00000000-0000-0000-0000-000000000007"
    assert from_dict(shop.Order, found).rate == -math.inf
    assert math.isnan(from_json(shop.Order, to_json(order(shop, rate=math.nan))).rate)


def test_a_missing_field_has_its_default(shop: ModuleType) -> None:
    fields = to_dict(order(shop))
    del fields["note"], fields["either"]
    assert from_dict(shop.Order, fields) == order(shop)


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"at": "yesterday"}, "at", "timestamp-millis"),
        ({"rate": True}, "rate", "double"),
        ({"kind": "OLD"}, "kind", "shop.Kind"),
        ({"lines": [{"class": "pen"}]}, "lines[0].price", "no default"),
        ({"lines": {}}, "lines", "array"),
        ({"colour": "red"}, "colour", "no such field"),
        ({"by_name": {"ada": "3"}}, "by_name['ada']", "long"),
        ({"either": 1.5}, "either", "null or long or string or shop.Line"),
        ({"by_name": {"ada": 1 << 63}}, "by_name['ada']", "64 bits"),
        ({"raw": b"three"}, "raw", "2"),
    ],
)
def test_a_wrong_value_is_named(
    shop: ModuleType, change: dict[str, Any], path: str, expected: str
) -> None:
    with pytest.raises(EncodeError) as caught:
        from_dict(shop.Order, {**to_dict(order(shop)), **change})
    assert caught.value.path == path
    assert expected in caught.value.expected


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="dict is not a class"):
        to_dict({})
    with pytest.raises(TypeError, match="dict is not a class"):
        from_dict(dict, {})


def test_fastapi_takes_and_returns_events(shop: ModuleType) -> None:
    app = FastAPI()
    taken: list[Any] = []

    def place(given: Any) -> Any:
        taken.append(given)
        return given

    place.__annotations__ = {"given": shop.Order, "return": shop.Order}
    app.post("/orders")(place)
    event = order(shop, raw=b"ab")
    sent = json.loads(to_json(event))
    sent["lines"] = [{"class_": "book", "price": "12.50"}]  # pydantic knows Python's names
    with TestClient(app) as client:
        answer = client.post("/orders", json=sent)
        assert answer.status_code == 200, answer.text
        assert taken == [event]
        assert client.post("/orders", json={**sent, "kind": "OLD"}).status_code == 422
        named = client.get("/openapi.json").json()["components"]["schemas"]
        assert {"Order-Input", "Order-Output", "Kind"} <= named.keys()
