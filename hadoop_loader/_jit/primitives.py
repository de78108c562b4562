"""Compiled functions on single values: numbers, text, decimals, and keys of maps.

Rules: they are plain functions over arrays that numba compiles. The caller provides room for what
they write. A position of -1 means that the bytes are missing or are not a value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hadoop_loader._jit.jit import jit, jit_leaf

__all__ = [
    "FEW_KEYS",
    "copy_bytes",
    "decimal_fits",
    "decimal_halves",
    "equal_bytes",
    "few_keys_repeat",
    "is_utf8",
    "many_keys_repeat",
    "read_little_endian",
    "read_span",
    "read_varint",
    "write_decimal",
    "write_uuid",
]  # fmt: skip

_LOW_63 = 0x7FFF_FFFF_FFFF_FFFF
FEW_KEYS = 16  # up to this many, each key is compared with each
_DIGITS = 48  # the character 0
_LETTERS = 87  # ten more is the character a


def _read_varint(data: Any, at: Any, end: Any) -> Any:
    """Return a zig-zag varint and the position after it; -1 if it is missing or too long."""
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


read_varint = jit_leaf(_read_varint)


def _read_span(data: Any, at: Any, end: Any, size: Any) -> Any:
    """Return size and start of bytes; start is -1 if they are missing.

    If `size` is -1, the size is read before them.
    """
    if size < 0:
        size, at = read_varint(data, at, end)
        if at < 0 or size < 0:
            return 0, -1
    if size > end - at:
        return 0, -1
    return size, at


read_span = jit_leaf(_read_span)


def _copy_bytes(source: Any, start: Any, target: Any, to: Any, size: Any) -> Any:
    """Copy bytes; return the bits that are set in at least one of them.

    The counters are unsigned: to a signed index numba adds the length if it is below 0, and then
    the machine copies byte by byte.
    """
    begin, there = np.uint64(start), np.uint64(to)
    seen = np.uint8(0)
    for k in range(np.uint64(size)):
        byte = source[begin + k]
        target[there + k] = byte
        seen |= byte
    return seen


copy_bytes = jit_leaf(_copy_bytes)


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


is_utf8 = jit_leaf(_is_utf8)


def _equal_bytes(heap: Any, one: Any, other: Any, size: Any) -> Any:
    k = 0
    while k < size and heap[one + k] == heap[other + k]:
        k += 1
    return k == size


equal_bytes = jit_leaf(_equal_bytes)


def _few_keys_repeat(ends: Any, base: Any, heap: Any, text: Any, first: Any, last: Any) -> Any:
    """Return whether two of the keys `first`..`last` are equal; `ends` says where each one ends."""
    for i in range(first + 1, last):
        start = ends[base + i - 1]
        length = ends[base + i] - start
        for other in range(first, i):
            begin = ends[base + other - 1] if other > 0 else 0
            if ends[base + other] - begin == length and equal_bytes(
                heap, text + begin, text + start, length
            ):
                return True
    return False


few_keys_repeat = jit_leaf(_few_keys_repeat)


def _many_keys_repeat(
    ends: Any, base: Any, heap: Any, text: Any, first: Any, last: Any, seed: Any
) -> Any:
    """Do the same with a hash table, so that the time does not grow with the square of the keys."""
    size = 1
    while size < 2 * (last - first):
        size *= 2
    table = np.full(size, -1, np.int64)
    for i in range(first, last):
        start = ends[base + i - 1] if i > 0 else 0
        length = ends[base + i] - start
        mixed = np.uint64(seed) ^ np.uint64(length)
        for k in range(length):
            mixed = (mixed ^ np.uint64(heap[text + start + k])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        place = np.int64(mixed & np.uint64(size - 1))
        other = table[place]
        while other >= 0:
            begin = ends[base + other - 1] if other > 0 else 0
            if ends[base + other] - begin == length and equal_bytes(
                heap, text + begin, text + start, length
            ):
                return True
            place = (place + 1) & (size - 1)
            other = table[place]
        table[place] = i
    return False


many_keys_repeat = jit(_many_keys_repeat)


def _decimal_fits(data: Any, at: Any, size: Any, pool: Any, limits: Any, width: Any) -> Any:
    """Return whether a big-endian number is between two limits of the pool (-10^p, then 10^p)."""
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


decimal_fits = jit_leaf(_decimal_fits)


def _decimal_halves(data: Any, at: Any, size: Any) -> Any:
    """Return the low and the high half of a big-endian number that fits into 128 bits."""
    sign = np.int64(0)
    if size > 0 and data[at] >= 0x80:
        sign = np.int64(-1)
    low, high = sign, sign
    for k in range(size):
        high = (high << 8) | ((low >> 56) & 255)
        low = (low << 8) | np.int64(data[at + k])
    return low, high


decimal_halves = jit_leaf(_decimal_halves)


def _write_decimal(data: Any, at: Any, size: Any, scale: Any, out: Any, to: Any) -> Any:
    """Write a big-endian number with `scale` digits after its point; return where the text ends."""
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


write_decimal = jit(_write_decimal)


def _write_uuid(data: Any, at: Any, out: Any, to: Any) -> Any:
    for k in range(16):
        if k in (4, 6, 8, 10):
            out[to] = 45
            to += 1
        for shift in (4, 0):
            digit = (np.int64(data[at + k]) >> shift) & 15
            out[to] = digit + (_DIGITS if digit < 10 else _LETTERS)
            to += 1


write_uuid = jit_leaf(_write_uuid)


def _read_little_endian(data: Any, at: Any, size: Any) -> Any:
    value = np.int64(0)
    for k in range(size):
        value |= np.int64(data[at + k]) << (8 * k)
    return value


read_little_endian = jit_leaf(_read_little_endian)
