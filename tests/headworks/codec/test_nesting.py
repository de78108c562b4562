"""An event has at most as many values inside each other as its readers take."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest

from headworks._decoding.datum_check import MAX_NESTING, DatumCheck
from headworks.codec import EncodeError
from headworks.codec._encoders import PythonEncoder
from headworks.errors import UsageError
from headworks.schema import parse
from producer_sdk._untyped import event_class
from tests.headworks.codec.generated_packages import build

pytestmark = pytest.mark.unit
LINK = {
    "type": "record",
    "name": "Link",
    "namespace": "chain",
    "fields": [
        {"name": "next", "type": ["null", "Link"], "default": None},
        {"name": "all", "type": {"type": "array", "items": "Link"}, "default": []},
        {"name": "named", "type": {"type": "map", "values": "Link"}, "default": {}},
    ],
}


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Any:
    text = json.dumps({**LINK, "headworks": {"topic": "links"}})
    return build(tmp_path_factory.mktemp("nesting"), {"link.avsc": text})["chain"].Link


def value_of(form: Any, event: Any) -> Any:
    head = b"\0\0\0\0\7"
    return form.message(head, event)[0].removeprefix(head)


@pytest.mark.parametrize("field", ["next", "all", "named"])
def test_no_event_is_encoded_that_readers_refuse(link: Any, field: str) -> None:
    def chain(length: int) -> Any:
        event = link()
        for _ in range(length - 1):
            inner = {"next": event, "all": [event], "named": {"x": event}}[field]
            event = link(**{field: inner})
        return event

    kind, check = link.__headworks__, DatumCheck(parse(json.dumps(LINK)))
    for form in (kind.encoder, kind.python_encoder):
        refused = {}
        for length in (1, 50, *range(120, 131), *range(245, 256), 20_000):
            event = chain(length)
            for encode in (form.encode, partial(value_of, form)):
                try:
                    datum = encode(event)
                except EncodeError as error:
                    refused[length] = str(error)
                else:
                    assert check.explain(datum) is None
            if length < 20_000:
                raw = kind.python_encoder._encode(event)
                assert (length in refused) == (check.explain(raw) is not None)
        assert {50, 120}.isdisjoint(refused)
        assert {255, 20_000} <= refused.keys()
        for text in refused.values():
            assert text.startswith("Link: the event is ")
            assert re.search("expected .*250 .* inside each other", text)


def test_an_endless_event_is_refused(link: Any) -> None:
    event = link()
    event.next = event
    with pytest.raises(EncodeError, match="expected at most 250 records"):
        link.__headworks__.encode(event)
    event.next = None


@pytest.mark.parametrize("union", [False, True])
def test_an_untyped_event_is_encoded_for_readers(union: bool) -> None:
    governed = {"headworks": {"topic": "links"}}
    other = {"type": "record", "name": "chain.Other", "fields": [], **governed}
    link = {**LINK, **governed}
    text = json.dumps([other, link] if union else link)
    cls = event_class("links", text)

    def encoded(length: int) -> bytes:
        value: Any = {}
        for _ in range(length - 1):
            value = {"next": value}
        found: bytes = cls.__headworks__.encode(cls({"chain.Link": value} if union else value))
        return found

    assert DatumCheck(parse(text)).explain(encoded(80)) is None
    with pytest.raises(UsageError, match=r"nested too deeply|250 .* inside each other"):
        encoded(MAX_NESTING + 1)


def test_what_is_not_recursive_is_not_looked_at() -> None:
    def fail(_: object) -> bytes:
        raise RecursionError("the stack was nearly full")

    flat = {"type": "record", "name": "Flat", "fields": [{"name": "n", "type": "int"}]}
    encoder: PythonEncoder[Any] = PythonEncoder(json.dumps(flat), "Flat", fail, None, None)
    with pytest.raises(RecursionError):
        encoder.encode(object())
