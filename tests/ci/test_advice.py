"""A change that follows a refusal's advice passes next time: no advice leads into another refusal.

Each change was refused, and a person who saw only the message mended it. Where a message names two
ways, the test takes the one that changes more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headworks._ci.gate import check
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")
Fields = list[dict[str, Any]]


def _field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def _logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def _size(symbols: str, **more: Any) -> dict[str, Any]:
    return _field("size", {"type": "enum", "name": "Size", "symbols": symbols.split(), **more})


def _address(*fields: dict[str, Any]) -> dict[str, Any]:
    inner = [_field("street", "string"), *fields]
    return _field("address", {"type": "record", "name": "Address", "fields": inner})


def _quantity(**more: Any) -> dict[str, Any]:
    inner = {"type": "record", "name": "Quantity", "fields": [_field("n", "int")]}
    return _field("quantity", inner, **more)


MILLIS, MICROS = (_logical("long", f"timestamp-{unit}") for unit in ("millis", "micros"))
CENTS, FINE = (_logical("bytes", "decimal", precision=9, scale=scale) for scale in (2, 4))
FIRST = _field("first_name", "string")
MAYBE = ["null", "string"]

# By what changed: the fields before, after, and as the message has them.
MENDED: dict[str, tuple[Fields, Fields, Fields]] = {
    "rename-alias": ([FIRST], [_field("given", "string", aliases=["first_name"])], [FIRST]),
    "rename": ([FIRST], [_field("given", "string")], [FIRST]),
    "symbol": ([_size("S M L")], [_size("S M")], [_size("S M", default="S")]),
    "narrowed": (
        [_field("c", "long")],
        [_field("c", "int")],
        [_field("c", "long"), _field("c_int", ["null", "int"], default=None)],
    ),
    "nested": (
        [_address()],
        [_address(_field("zip", MAYBE), _field("country", "string"))],
        [_address(_field("zip", MAYBE, default=None), _field("country", "string", default=""))],
    ),
    "record": ([ID], [ID, _quantity()], [ID, _quantity(default={"n": 0})]),
    "time": (
        [_field("at", MILLIS)],
        [_field("at", MICROS)],
        [_field("at", MILLIS), _field("at_micros", ["null", MICROS], default=None)],
    ),
    "scale": (
        [_field("price", CENTS)],
        [_field("price", FINE)],
        [_field("price", CENTS), _field("price_fine", ["null", FINE], default=None)],
    ),
    "union": (
        [_field("v", MAYBE, default=None)],
        [_field("v", [*MAYBE, "long"], default=None)],
        [_field("v", MAYBE, default=None), _field("v2", ["null", "long"], default=None)],
    ),
    "mistyped-default": (
        [ID],
        [ID, _field("lid", "boolean", default="")],
        [ID, _field("lid", "boolean", default=False)],
    ),
    "typing-error": ([ID], [_field("id", "lonng")], [ID]),
}


def _write(work: Work, state: int) -> None:
    for number, (what, states) in enumerate(MENDED.items()):
        work.write(f"{what}.avsc", event(*states[state], topic=what, name=f"Event{number}"))


def test_each_refusal_is_mended_from_its_message(work: Work) -> None:
    work.git("checkout", "-q", "main")
    work.write("governance.toml", '[default]\npolicy = "warehouse"\n')
    _write(work, 0)
    work.write("gone.avsc", event(ID, topic="gone"))
    work.commit()
    work.git("checkout", "-q", "-B", "change")
    _write(work, 1)
    (work.schemas / "gone.avsc").unlink()
    refused = check(SCHEMAS, ["git:main"])
    paths = {Path(one.file).stem for one in refused.findings}
    assert paths == {*MENDED, "gone"}
    _write(work, 2)
    gone = check(SCHEMAS, ["git:main"])
    (left,) = gone.findings
    lines = ['[subjects."gone-value"]', 'compatibility = "NONE"']
    assert all(line in left.finding.fix for line in lines)
    governance = work.schemas / "governance.toml"
    work.write("governance.toml", "\n".join([governance.read_text(), *lines]))
    assert check(SCHEMAS, ["git:main"]).verdict == "pass"
