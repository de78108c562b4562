"""What the kernel does with single values: numbers, text, decimals, keys of maps.

Rules: plain functions over arrays of bytes and numbers that numba compiles; what they are told to
write into has room for it; a position of -1 says that the bytes are not there, or not a value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hadoop_loader.jit import compiled

__all__ = [
    "decimal_halves", "fits", "is_utf8", "little", "number", "repeats", "span", "write_decimal",
    "write_uuid",
]  # fmt: skip

_LOW_63 = 0x7FFF_FFFF_FFFF_FFFF
_MANY_KEYS = 16
_DIGITS = 48  # the character 0
_LETTERS = 87  # ten more is the character a


def _number(data: Any, at: Any, end: Any) -> Any:
    """A zig-zag varint and the position after it; -1: there is none, or it has over 64 bits."""
    if at >= end:
        return 0, -1
    byte = np.int64(data[at])
    at += 1
    value = byte & 127
    shift = 7
    while byte >= 128:
        if at >= end or shift > 63:
            return 0, -1
        byte = np.int64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        value |= (byte & 127) << shift
        shift += 7
    return ((value >> 1) & _LOW_63) ^ -(value & 1), at


number = compiled(_number)


def _span(data: Any, at: Any, end: Any, size: Any) -> Any:
    """Size and start of bytes (their size is before them if `size` is -1); start -1: not there."""
    if size < 0:
        size, at = number(data, at, end)
        if at < 0 or size < 0:
            return 0, -1
    if size > end - at:
        return 0, -1
    return size, at


span = compiled(_span)


def _is_utf8(data: Any, at: Any, end: Any) -> Any:
    while at < end:
        first = data[at]
        if first < 0x80:
            at += 1
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 + (first >= 0xE0) + (first >= 0xF0)
        if at + more >= end:
            return False
        second = data[at + 1]
        if (
            second & 0xC0 != 0x80
            or (first == 0xE0 and second < 0xA0)
            or (first == 0xED and second > 0x9F)
            or (first == 0xF0 and second < 0x90)
            or (first == 0xF4 and second > 0x8F)
        ):
            return False
        for k in range(2, more + 1):
            if data[at + k] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


is_utf8 = compiled(_is_utf8)


def _repeats(ends: Any, base: Any, heap: Any, text: Any, first: Any, last: Any, seed: Any) -> Any:
    """Whether two of the keys `first`..`last` are equal; `ends` says where each one ends."""
    few = last - first <= _MANY_KEYS
    size = 1
    while not few and size < 2 * (last - first):
        size *= 2
    table = np.full(size, -1, np.int64)
    for i in range(first, last):
        start = ends[base + i - 1] if i > 0 else 0
        length = ends[base + i] - start
        place = np.int64(0)
        if not few:
            mixed = np.uint64(seed) ^ np.uint64(length)
            for k in range(length):
                mixed = (mixed ^ np.uint64(heap[text + start + k])) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
            place = np.int64(mixed & np.uint64(size - 1))
        other = first if few else table[place]
        while (other < i) if few else (other >= 0):
            begin = ends[base + other - 1] if other > 0 else 0
            if ends[base + other] - begin == length:
                k = 0
                while k < length and heap[text + begin + k] == heap[text + start + k]:
                    k += 1
                if k == length:
                    return True
            if few:
                other += 1
            else:
                place = (place + 1) & (size - 1)
                other = table[place]
        if not few:
            table[place] = i
    return False


repeats = compiled(_repeats)


def _fits(data: Any, at: Any, size: Any, pool: Any, limits: Any, width: Any) -> Any:
    """Whether a big-endian number is between two limits of the pool (-10^p, then 10^p)."""
    if size == 0:
        return True
    sign = np.uint8(0xFF if data[at] >= 0x80 else 0)
    while size > width and data[at] == sign:
        at += 1
        size -= 1
    if size > width:
        return False
    limit = limits if sign else limits + width
    for k in range(width):
        byte = sign if k < width - size else data[at + k - (width - size)]
        if byte != pool[limit + k]:
            return (byte > pool[limit + k]) == (sign != 0)
    return False


fits = compiled(_fits)


def _decimal_halves(data: Any, at: Any, size: Any) -> Any:
    """A big-endian number that fits into 128 bits, as its low and its high half."""
    sign = np.int64(0)
    if size > 0 and data[at] >= 0x80:
        sign = np.int64(-1)
    low, high = sign, sign
    for k in range(size):
        high = (high << 8) | ((low >> 56) & 255)
        low = (low << 8) | np.int64(data[at + k])
    return low, high


decimal_halves = compiled(_decimal_halves)


def _write_decimal(data: Any, at: Any, size: Any, scale: Any, out: Any, to: Any) -> Any:
    """Write a big-endian number with `scale` digits after its point; where the text ends."""
    digits = np.zeros(3 * size + scale + 2, np.uint8)
    rest = data[at : at + size].copy()
    if size > 0 and rest[0] >= 0x80:
        out[to] = 45  # the minus sign
        to += 1
        carry = np.int64(1)
        for k in range(size - 1, -1, -1):
            carry += np.int64(np.uint8(~rest[k]))
            rest[k] = carry & 255
            carry >>= 8
    count = 0
    lead = 0
    while lead < size:
        if rest[lead] == 0:
            lead += 1
            continue
        over = np.int64(0)
        for k in range(lead, size):
            over = (over << 8) | np.int64(rest[k])
            rest[k] = over // 10
            over %= 10
        digits[count] = over
        count += 1
    count = max(count, scale + 1)
    for k in range(count - 1, -1, -1):
        out[to] = digits[k] + _DIGITS
        to += 1
        if k == scale and scale > 0:
            out[to] = 46  # the point
            to += 1
    return to


write_decimal = compiled(_write_decimal)


def _write_uuid(data: Any, at: Any, out: Any, to: Any) -> Any:
    for k in range(16):
        if k in (4, 6, 8, 10):
            out[to] = 45
            to += 1
        for shift in (4, 0):
            digit = (np.int64(data[at + k]) >> shift) & 15
            out[to] = digit + (_DIGITS if digit < 10 else _LETTERS)
            to += 1


write_uuid = compiled(_write_uuid)


def _little(data: Any, at: Any, size: Any) -> Any:
    value = np.int64(0)
    for k in range(size):
        value |= np.int64(data[at + k]) << (8 * k)
    return value


little = compiled(_little)
