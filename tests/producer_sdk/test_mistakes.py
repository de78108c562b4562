"""A user's mistakes: refused by the type checker, and at run time with the field's path."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headworks.codec import EncodeError
from producer_sdk._generator import generate, write
from tests.headworks.codec.generated_packages import build

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parent.parent / "golden" / "schemas"
NAIVE = dt.datetime(2020, 1, 1)  # noqa: DTZ001
EVENT = """{
  "type": "record", "name": "Order", "namespace": "shop",
  "fields": [
    {"name": "count", "type": "int"},
    {"name": "total", "type": "long"},
    {"name": "small", "type": "float"},
    {"name": "ratio", "type": "double"},
    {"name": "paid", "type": "boolean"},
    {"name": "name", "type": "string"},
    {"name": "raw", "type": "bytes"},
    {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
    {"name": "suit", "type": {"type": "enum", "name": "Suit", "symbols": ["A", "B"]}},
    {"name": "other", "type": {"type": "enum", "name": "Other", "symbols": ["A", "B"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "prices", "type": {"type": "map", "values": "int"}},
    {"name": "item", "type": {"type": "record", "name": "Item", "fields": [
      {"name": "price", "type":
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
      {"name": "next", "type": ["null", "Item"], "default": null}]}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "choice", "type": ["null", "string", "int", "Item"]},
    {"name": "number", "type": ["int", "long", "double"], "default": 0},
    {"name": "nothing", "type": "null"}
  ]
}"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build(tmp_path_factory.mktemp("mistakes"), {"order.avsc": EVENT})["shop"]


def order(shop: Any, **changed: Any) -> Any:
    values = {
        "count": 1,
        "total": 2,
        "small": 1.5,
        "ratio": 0.5,
        "paid": True,
        "name": "x",
        "raw": b"",
        "code": b"ab",
        "suit": shop.Suit.A,
        "other": shop.Other.A,
        "tags": ["a"],
        "prices": {"a": 1},
        "item": shop.Item(price=Decimal("1.25")),
        "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        "local": NAIVE,
        "day": dt.date(2020, 1, 1),
        "time": dt.time(1, 2),
        "id": uuid.UUID(int=1),
        "choice": None,
        "nothing": None,
    }
    return shop.Order(**{**values, **changed})


WRONG: list[tuple[str, Any, str]] = [
    ("count", "1", "count"),
    ("count", True, "count"),
    ("count", 1.0, "count"),
    ("count", 1 << 31, "count"),
    ("count", None, "count"),
    ("total", -(1 << 63) - 1, "total"),
    ("small", 1e39, "small"),
    ("small", "1", "small"),
    ("ratio", Decimal(1), "ratio"),
    ("ratio", False, "ratio"),
    ("paid", 1, "paid"),
    ("name", b"x", "name"),
    ("name", "\ud800", "name"),
    ("raw", "x", "raw"),
    ("code", b"abc", "code"),
    ("suit", "A", "suit"),
    ("tags", "ab", "tags"),
    ("tags", ["a", 1], "tags[1]"),
    ("prices", {"a": 1, "b": None}, "prices['b']"),
    ("prices", {1: 1}, "prices"),
    ("prices", [1], "prices"),
    ("item", None, "item"),
    ("item", {"price": 1}, "item"),
    ("at", NAIVE, "at"),
    ("at", 5, "at"),
    ("at", dt.date(2020, 1, 1), "at"),
    ("local", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "local"),
    ("day", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "day"),
    ("time", dt.time(1, tzinfo=dt.UTC), "time"),
    ("id", "00000000-0000-0000-0000-000000000001", "id"),
    ("choice", 1.5, "choice"),
    ("choice", True, "choice"),
    ("choice", 1 << 40, "choice"),
    ("choice", type("Text", (str,), {})("x"), "choice"),
    ("number", 1 << 70, "number"),
    ("nothing", 0, "nothing"),
]


@pytest.mark.parametrize(("field", "value", "path"), WRONG)
def test_a_wrong_value_is_named(shop: Any, field: str, value: Any, path: str) -> None:
    with pytest.raises(EncodeError) as caught:
        shop.Order.__headworks__.encode(order(shop, **{field: value}))
    assert caught.value.path == path
    assert f"Order: {path} is " in str(caught.value)
    assert "expected" in str(caught.value)


def test_the_path_leads_into_records(shop: Any) -> None:
    inner = shop.Item(price=Decimal("1.25"), next=shop.Item(price=Decimal("1.255")))
    with pytest.raises(EncodeError) as caught:
        shop.Order.__headworks__.encode(order(shop, item=inner))
    assert caught.value.path == "item.next.price"
    assert caught.value.expected == "a Decimal of at most 4 digits, 2 of them decimals"


@pytest.mark.parametrize("value", ["100.00", "-0.001", "1E+2", "NaN", "Infinity", "12345"])
def test_a_decimal_is_never_rounded(shop: Any, value: str) -> None:
    with pytest.raises(EncodeError, match=r"item\.price"):
        shop.Order.__headworks__.encode(order(shop, item=shop.Item(price=Decimal(value))))


@pytest.mark.parametrize("value", ["99.99", "-99.99", "0", "1E+1", "001.10"])
def test_a_decimal_that_fits_is_taken(shop: Any, value: str) -> None:
    unscaled = int(Decimal(value) * 100)
    size = max(1, (unscaled.bit_length() + 8) // 8)
    expected = unscaled.to_bytes(size, "big", signed=True)
    encoded = shop.Order.__headworks__.encode(order(shop, item=shop.Item(price=Decimal(value))))
    assert bytes([2 * size]) + expected in encoded


def test_records_of_one_name_in_two_modules_are_distinct(shop: Any) -> None:
    namesake = type("Item", (), {})()
    with pytest.raises(EncodeError, match=r"expected an? [a-z.]+\.Item$"):
        shop.Order.__headworks__.encode(order(shop, item=namesake))
    with pytest.raises(EncodeError, match=r"expected an Item$"):
        shop.Order.__headworks__.encode(order(shop, item=None))


def test_a_symbol_of_another_enum_is_refused(shop: Any) -> None:
    with pytest.raises(EncodeError, match=r"suit is .*expected a member of the enum Suit"):
        shop.Order.__headworks__.encode(order(shop, suit=shop.Other.A))


def test_an_event_of_another_class_is_refused(shop: Any) -> None:
    with pytest.raises(EncodeError, match="the event is"):
        shop.Order.__headworks__.encode(shop.Item(price=Decimal(1)))


def test_subclasses_of_events_and_containers_encode(shop: Any) -> None:
    plain = order(shop)
    sub = type("Sub", (shop.Order,), {})
    kind = shop.Order.__headworks__
    values = {name: getattr(plain, name) for name in kind.fields.values()}
    assert kind.encode(sub(**{**values, "tags": ("a",)})) == kind.encode(plain)


USAGE = """
import datetime as dt
from events.golden_recursion import Tree
from events.golden_defaults import Defaults, Suit
from events.golden_unions import Click, Unions

Tree(label="right")
Tree(label=1)
Tree()
Tree(label="a", lable="b")
Tree(label=None)
Defaults(enum="HEARTS", record=None)
Defaults(enum=Suit.HEARTS, instant=5, array=["x"])
Tree(label="a", left=Click(at=1))
Tree(label="a").labels
"""
ERRORS = [
    (8, "arg-type"),
    (9, "call-arg"),
    (10, "call-arg"),
    (11, "arg-type"),
    (12, "arg-type"),
    (12, "arg-type"),
    (13, "arg-type"),
    (13, "list-item"),
    (14, "arg-type"),
    (15, "attr-defined"),
]


PYRIGHT = {
    "arg-type": "reportArgumentType",
    "attr-defined": "reportAttributeAccessIssue",
    "call-arg": "reportCallIssue",
    "list-item": "reportArgumentType",
}


@pytest.mark.contract
def test_every_mistake_is_a_pyright_error_and_generated_code_has_none(tmp_path: Path) -> None:
    write(generate([GOLDEN]), tmp_path / "events")
    (tmp_path / "usage.py").write_text(USAGE)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--outputjson", "--project", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] >= len(list(GOLDEN.glob("*.avsc")))
    found = [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["rule"])
        for each in report["generalDiagnostics"]
    ]
    assert sorted(found) == [("usage.py", line, PYRIGHT[rule]) for line, rule in ERRORS]


@pytest.mark.contract
def test_every_mistake_is_a_mypy_error(tmp_path: Path) -> None:
    write(generate([GOLDEN]), tmp_path / "events")
    (tmp_path / "usage.py").write_text(USAGE)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir"]
    done = subprocess.run(
        [*command, "/dev/null", "usage.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [
        (int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]"))
        for line in done.stdout.splitlines()
        if ": error:" in line
    ]
    assert sorted(found) == ERRORS, done.stdout
