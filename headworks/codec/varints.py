"""Avro's variable-length integers (zigzag, 7 bits a byte), from tables.

Rules:

- A number is looked up, not computed: one lookup for up to 2 bytes, two for up to 4, three for a
  timestamp.
- `ZIGZAG` is indexed by the number itself, from -8192 to 8191. Python's negative indices are the
  upper half of the table. `COUNT` is indexed by a length. Generated code tests the bounds first.
- The functions take every number of their type and refuse everything else, including bool.
"""

from __future__ import annotations

__all__ = ["COUNT", "ZIGZAG", "count", "int32", "int64"]

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1

# The shortest form of 0 to 16383, and the form of 14 bits that more bits follow.
_LAST = [bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(1 << 14)]
_MORE = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14)]

# The latter for the lowest 13 bits of a positive number, before its zigzag.
_LOW = _MORE[0::2]

ZIGZAG = _LAST[0::2] + _LAST[:0:-2]
COUNT = _LAST[0::2]


def _unsigned(n: int) -> bytes:
    if n < 1 << 14:
        return _LAST[n]
    if n < 1 << 28:
        return _MORE[n & 0x3FFF] + _LAST[n >> 14]
    if n < 1 << 42:
        return _MORE[n & 0x3FFF] + _MORE[n >> 14 & 0x3FFF] + _LAST[n >> 28]
    return _MORE[n & 0x3FFF] + _MORE[n >> 14 & 0x3FFF] + _unsigned(n >> 28)


def int32(n: int) -> bytes:
    """Encode an Avro int; raise TypeError or OverflowError for any other value."""
    if n.__class__ is not int:
        _check_class(n)
    if 0x1FFF < n < 1 << 27:
        return _LOW[n & 0x1FFF] + _LAST[n >> 13]
    if not _INT_MIN <= n <= _INT_MAX:
        raise OverflowError(n)
    return _unsigned((n << 1) ^ (n >> 31))


def int64(n: int) -> bytes:
    """Encode an Avro long; raise TypeError or OverflowError for any other value."""
    if n.__class__ is not int:
        _check_class(n)
    if 0x1FFF < n < 1 << 41:  # most larger numbers are ids and times
        high = n >> 13
        if high < 1 << 14:
            return _LOW[n & 0x1FFF] + _LAST[high]
        return _LOW[n & 0x1FFF] + _MORE[high & 0x3FFF] + _LAST[high >> 14]
    if not _LONG_MIN <= n <= _LONG_MAX:
        raise OverflowError(n)
    return _unsigned((n << 1) ^ (n >> 63))


def _check_class(n: object) -> None:
    """Accept a subclass of int; bool is one, and is refused."""
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(n)


def count(n: int) -> bytes:
    """Encode a length or the number of items in a block."""
    return COUNT[n] if n < 8192 else _unsigned(n << 1)
