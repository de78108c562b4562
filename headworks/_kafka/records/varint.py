"""Variable-length integers of the record format: zigzag (signed) and plain (unsigned).

Rule: a varint is at most 10 bytes; longer ones are damage and raise ValueError, as does the end
of the buffer.
"""

from __future__ import annotations

from headworks._kafka.records.batch import Buffer

_MAX_SHIFT = 63


def read_unsigned(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the unsigned varint at `position`, and the position after it."""
    value = shift = 0
    while True:
        try:
            byte = buffer[position]
        except IndexError:
            raise ValueError("varint runs over the end of the buffer") from None
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _MAX_SHIFT:
            raise ValueError("varint is longer than 10 bytes")


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the zigzag varint at `position`, and the position after it."""
    value, position = read_unsigned(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def write_unsigned(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_varint(value: int) -> bytes:
    """Return the zigzag varint of a 64-bit integer."""
    return write_unsigned((value << 1) ^ (value >> 63))
