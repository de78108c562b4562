"""Reading numbers and skipping values: the parts of decoding that the schema does not shape.

Rules:

- Bytes in, new position out. A read past the end raises IndexError, and no loop runs longer than
  the bytes justify.
- Recursion is as deep as the data; Python's own limit ends hostile data.
"""

from __future__ import annotations

from collections.abc import Callable

from headworks.schema import Array, EnumType, Fixed, MapType, Record, Schema, Union

Skipper = Callable[[bytes, int, int], int]
MAX_EMPTY_ITEMS = 100_000
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class BadDatumError(ValueError):
    """Bytes that are not a datum of the writer's schema, or that the reader cannot take."""


def read_long(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Return a zig-zag varint and the position after it.

    `first` is its first byte, which says that more follow.
    """
    byte = data[at]
    at += 1
    value, shift = first - 128 + (byte << 7), 14
    while byte > 127:
        if shift > 63:
            raise BadDatumError("a number has more than 10 bytes")
        byte = data[at]
        at += 1
        value += byte - 1 << shift  # less the mark of the byte before, that more follow
        shift += 7
    if value >= 1 << 64:
        raise BadDatumError("a number has more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def read_int(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Do the same as read_long for numbers of 32 bits."""
    value, at = read_long(data, at, first)
    if not -(2**31) <= value < 2**31:
        raise BadDatumError(f"{value} has more than 32 bits")
    return value, at


def skipper(schema: Schema) -> Skipper:
    """Return the function that skips one datum of `schema`."""
    return _skipper(schema, {})


def takes_nothing(schema: Schema) -> bool:
    """Return whether a datum of `schema` never takes a byte."""
    return values_without_bytes(schema) is not None


def values_without_bytes(schema: Schema) -> int | None:
    """Return how many values are in a datum that never takes a byte; None if it takes some.

    Records that hold the next one twice have 2**n of them, at no byte.
    """
    return _values_without_bytes(schema, {})


def _values_without_bytes(schema: Schema, known: dict[int, int | None]) -> int | None:
    if isinstance(schema, Fixed):
        return None if schema.size else 1
    if not isinstance(schema, Record):
        return 1 if schema.kind == "null" else None
    if id(schema) not in known:
        known[id(schema)] = None  # a record that holds itself has no end
        inside = [_values_without_bytes(f.type, known) for f in schema.fields]
        counts = [count for count in inside if count is not None]
        known[id(schema)] = 1 + sum(counts) if len(counts) == len(inside) else None
    return known[id(schema)]


def _skipper(schema: Schema, known: dict[int, Skipper]) -> Skipper:
    """Return a skipper; `known` are those of the records around, so recursion ends."""
    if takes_nothing(schema):
        return _skip_width(0)
    if isinstance(schema, Record):
        if id(schema) not in known:
            known[id(schema)] = _skip_record(schema, known)
        return known[id(schema)]
    if isinstance(schema, Union):
        return _skip_union([_skipper(branch, known) for branch in schema.branches])
    if isinstance(schema, Array):
        return _skip_blocks(None if takes_nothing(schema.items) else _skipper(schema.items, known))
    if isinstance(schema, MapType):
        value = _skipper(schema.values, known)
        return _skip_blocks(lambda data, at, end: value(data, _skip_bytes(data, at, end), end))
    if isinstance(schema, Fixed):
        return _skip_width(schema.size)
    if isinstance(schema, EnumType) or schema.kind in ("int", "long"):
        return _skip_number
    if schema.kind in ("bytes", "string"):
        return _skip_bytes
    return _skip_width(_WIDTHS[schema.kind])


def _number(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < 128:
        return (first >> 1) ^ -(first & 1), at + 1
    return read_long(data, at + 1, first)


def _skip_number(data: bytes, at: int, end: int) -> int:  # noqa: ARG001 - one signature for all
    return _number(data, at)[1]


def _skip_bytes(data: bytes, at: int, end: int) -> int:
    length, at = _number(data, at)
    if length < 0:
        raise BadDatumError("a length is negative")
    if at + length > end:
        raise IndexError
    return at + length


def _skip_width(width: int) -> Skipper:
    def skip(data: bytes, at: int, end: int) -> int:  # noqa: ARG001 - one signature for all
        if at + width > end:
            raise IndexError
        return at + width

    return skip


def _skip_union(branches: list[Skipper]) -> Skipper:
    def skip(data: bytes, at: int, end: int) -> int:
        branch, at = _number(data, at)
        if not 0 <= branch < len(branches):
            raise BadDatumError(f"{branch} is no branch of the union")
        return branches[branch](data, at, end)

    return skip


def _skip_blocks(item: Skipper | None) -> Skipper:
    """`item` is None where items take no bytes: a count of them is no work."""

    def skip(data: bytes, at: int, end: int) -> int:
        while True:
            count, at = _number(data, at)
            if count == 0:
                return at
            if count < 0:
                at = _skip_bytes(data, at, end)
                continue
            if item is None:
                continue
            for _ in range(count):
                at = item(data, at, end)

    return skip


def _skip_record(schema: Record, known: dict[int, Skipper]) -> Skipper:
    steps: list[Skipper] = []

    def skip(data: bytes, at: int, end: int) -> int:
        for step in steps:
            at = step(data, at, end)
        return at

    known[id(schema)] = skip
    steps.extend(_skipper(f.type, known) for f in schema.fields)
    return skip
