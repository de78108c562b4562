"""The wire format: a zero, four bytes of schema id, the datum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._wire import FramingError, prefix, unframe

pytestmark = pytest.mark.unit


@given(st.integers(0, 2**32 - 1), st.binary())
def test_what_is_framed_comes_back(schema_id: int, payload: bytes) -> None:
    assert unframe(prefix(schema_id) + payload) == (schema_id, payload)


def test_the_layout_is_confluents() -> None:
    assert prefix(0x01020304) == b"\x00\x01\x02\x03\x04"


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x00\x01", b'{"a": 1}'])
def test_anything_else_is_refused_with_a_way_out(value: bytes) -> None:
    with pytest.raises(FramingError, match="fix: produce it with"):
        unframe(value)


@pytest.mark.parametrize("schema_id", [-1, 2**32])
def test_an_id_must_fit(schema_id: int) -> None:
    with pytest.raises(ValueError, match="4 bytes"):
        prefix(schema_id)
