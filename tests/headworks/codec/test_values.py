"""The quick ways of encoding, by tables and by what is kept, give the bytes of the slow ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks.codec.values import KEYS, instant_micros, instant_millis, millis, text_of
from headworks.codec.varints import count, int32, int64

pytestmark = pytest.mark.unit

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BITS = (13, 14, 27, 28, 41, 42)


@pytest.mark.parametrize("bits", [*_BITS, 31])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_numbers_where_the_tables_end(bits: int, off: int) -> None:
    for n in ((1 << bits) + off, -(1 << bits) + off):
        zigzag = n << 1 ^ n >> 63
        digits = [zigzag >> at & 127 for at in range(0, zigzag.bit_length(), 7)]
        slow = bytes([digit | 128 for digit in digits[:-1]] + digits[-1:])
        assert int64(n) == slow
        if -(1 << 31) <= n < 1 << 31:
            assert int32(n) == slow
        if n >= 0:
            assert count(n) == slow


def test_keys_are_kept_and_do_not_pile_up() -> None:
    for n in range(5000):
        assert KEYS[f"user-{n}"] == text_of(f"user-{n}")
    assert KEYS["naïve ✓"] == KEYS["naïve ✓"] == text_of("naïve ✓")
    long = "x" * 1000
    assert KEYS[long] == text_of(long)
    assert long not in KEYS
    assert len(KEYS) <= 1024


@pytest.mark.parametrize("key", [1, None, b"a", ["a"], "\ud800"])
def test_a_key_that_is_no_text_is_refused(key: object) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        KEYS[key]  # type: ignore[index]
    with pytest.raises((TypeError, UnicodeEncodeError)):
        KEYS[key]  # type: ignore[index]


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=1, max_size=3))
def test_an_instant_is_its_own_whatever_was_before(times: list[datetime]) -> None:
    for at in (*times, *times, *times[::-1]):
        micros = (at - _EPOCH) // timedelta(microseconds=1)
        assert instant_micros(at) == int64(micros)
        assert instant_millis(at) == int64(micros // 1000)
        assert millis(at) == micros // 1000


def test_a_naive_instant_is_refused_whatever_was_before() -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    assert millis(at) == millis(at)
    with pytest.raises(TypeError):
        millis(at.replace(tzinfo=None))
