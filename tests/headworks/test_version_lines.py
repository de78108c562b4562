"""Versions in lines are the versions of the JSON list."""

from __future__ import annotations

import copy
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
        {"subject": _TEXTS, "version": st.integers(1), "schema": _TEXTS},
        optional={"aliases": st.lists(_TEXTS), "metadata": st.just({"properties": {"a": "\n"}})},
    )
)


@given(_VERSIONS)
def test_lines_hold_what_the_objects_hold(versions: list[dict[str, Any]]) -> None:
    assert _version_lines.decode(_version_lines.encode(copy.deepcopy(versions))) == versions


@pytest.mark.parametrize(
    "body", [b"", b"[]\n", b'[{"version":1}]', b'[{"schema":""}]\n{}', b"\xff"]
)
def test_a_body_with_other_lines_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|argument 2|decode"):
        _version_lines.decode(body)
