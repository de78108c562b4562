"""Versions in lines are the versions of the JSON list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks import _version_lines

pytestmark = pytest.mark.unit

_TEXTS = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["", "\n", '"int"', '{"doc":"a\nb"}', "\r\n", "\u2028", "\x85"]
)
_VERSIONS = st.lists(
    st.fixed_dictionaries(
        {
            "subject": _TEXTS,
            "version": st.integers(1),
            "id": st.integers(1),
            "guid": _TEXTS,
            "schemaType": st.just("AVRO"),
            "schema": _TEXTS,
            "ts": st.integers(0),
        },
        optional={
            "aliases": st.lists(_TEXTS),
            "deleted": st.just(True),
            "metadata": st.just({"properties": {"a": "\n"}}),
        },
    )
)


@given(_VERSIONS)
def test_lines_hold_what_the_objects_hold(versions: list[dict[str, Any]]) -> None:
    assert _version_lines.decode(_version_lines.encode(versions)).objects() == versions


_COLUMNS = {"subject": ["a"], "version": [1], "id": [1], "guid": ["g"], "ts": [1], "more": {}}


@pytest.mark.parametrize(
    "head",
    [
        [],
        {},
        {name: value for name, value in _COLUMNS.items() if name != "more"},
        {name: value for name, value in _COLUMNS.items() if name != "ts"},
        _COLUMNS | {"version": []},
        _COLUMNS | {"version": 1},
        _COLUMNS | {"more": []},
        _COLUMNS | {"more": {"1": {"deleted": True}}},
        _COLUMNS | {"more": {"x": {}}},
        _COLUMNS | {"more": {"0": {"schema": "a second text"}}},
        _COLUMNS | {"more": {"0": 1}},
    ],
)
def test_another_first_line_is_an_error(head: object) -> None:
    with pytest.raises(ValueError, match="line"):
        _version_lines.decode(json.dumps(head).encode() + b"\n{}")


@pytest.mark.parametrize("more", [b"", b"\n{}\n{}"])
def test_a_body_with_more_or_fewer_lines_is_an_error(more: bytes) -> None:
    assert _version_lines.decode(json.dumps(_COLUMNS).encode() + b"\n{}").texts == ["{}"]
    with pytest.raises(ValueError, match="lines"):
        _version_lines.decode(json.dumps(_COLUMNS).encode() + more)


@pytest.mark.parametrize("body", [b"", b"\xff", b"{\n}"])
def test_a_body_of_another_kind_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|decode"):
        _version_lines.decode(body)
