"""Datums as JSON values, for what no column type can hold.

Rules:

- Records and maps are objects, enums are symbols, bytes are base64, and a number is the one that
  was written, whatever its logical type. NaN and the infinities are strings.
- Recursion is as deep as the data: Python's own limit ends hostile data. Items that take no bytes
  are bounded by MAX_EMPTY_ITEMS in the whole value.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from typing import Any

from headworks._decoding.primitives import (
    MAX_EMPTY_ITEMS,
    BadDatumError,
    read_long,
    takes_nothing,
)
from headworks.schema import Array, EnumType, Fixed, MapType, Record, Schema, Union

# Reads a datum at a position, and returns the value and the position after it. The list has the
# number of empty items so far.
ReadJson = Callable[[bytes, int, list[int]], tuple[Any, int]]


class JsonReaders:
    """The readers of schemas; a record that contains itself has one."""

    def __init__(self) -> None:
        self._records: dict[int, ReadJson] = {}  # by id of a record

    def of(self, schema: Schema) -> ReadJson:
        """Return what reads a datum of `schema` as a JSON value."""
        if isinstance(schema, Record):
            return self._object(schema)
        if isinstance(schema, Union):
            return _read_union([self.of(branch) for branch in schema.branches])
        if isinstance(schema, Array):
            return _read_array(self.of(schema.items), empty=takes_nothing(schema.items))
        if isinstance(schema, MapType):
            return _read_map(self.of(schema.values))
        if isinstance(schema, EnumType):
            return _read_symbol(schema)
        if isinstance(schema, Fixed):
            return _read_fixed(schema.size)
        return _PRIMITIVES[schema.kind]

    def _object(self, schema: Record) -> ReadJson:
        if id(schema) not in self._records:
            members: list[tuple[str, ReadJson]] = []

            def read(data: bytes, at: int, empty: list[int]) -> tuple[Any, int]:
                found = {}
                for name, member in members:
                    found[name], at = member(data, at, empty)
                return found, at

            self._records[id(schema)] = read
            members += [(f.name, self.of(f.type)) for f in schema.fields]
        return self._records[id(schema)]


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return an int or a long, and the position after it."""
    first = data[at]
    if first < 128:
        return (first >> 1) ^ -(first & 1), at + 1
    return read_long(data, at + 1, first)


def _read_union(branches: list[ReadJson]) -> ReadJson:
    def read(data: bytes, at: int, empty: list[int]) -> tuple[Any, int]:
        branch, at = read_number(data, at)
        if not 0 <= branch < len(branches):
            raise BadDatumError(f"{branch} is no branch of the union")
        return branches[branch](data, at, empty)

    return read


def _items(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in the next block."""
    count, at = read_number(data, at)
    if count < 0:
        _, at = read_number(data, at)
    return abs(count), at


def _read_array(item: ReadJson, *, empty: bool) -> ReadJson:
    def read(data: bytes, at: int, seen: list[int]) -> tuple[Any, int]:
        found: list[Any] = []
        while True:
            count, at = _items(data, at)
            if count == 0:
                return found, at
            if empty:
                seen[0] += count
                if seen[0] > MAX_EMPTY_ITEMS:
                    raise BadDatumError(f"more than {MAX_EMPTY_ITEMS:,} items take no bytes")
            for _ in range(count):
                value, at = item(data, at, seen)
                found.append(value)

    return read


def _read_map(value: ReadJson) -> ReadJson:
    def read(data: bytes, at: int, empty: list[int]) -> tuple[Any, int]:
        found: dict[str, Any] = {}
        while True:
            count, at = _items(data, at)
            if count == 0:
                return found, at
            for _ in range(count):
                key, at = _read_string(data, at, empty)
                if key in found:
                    raise BadDatumError(f"map key {key!r} occurs twice")
                found[key], at = value(data, at, empty)

    return read


def _read_symbol(schema: EnumType) -> ReadJson:
    def read(data: bytes, at: int, _: list[int]) -> tuple[Any, int]:
        n, at = read_number(data, at)
        if not 0 <= n < len(schema.symbols):
            raise BadDatumError(f"{n} is no symbol of the enum")
        return schema.symbols[n], at

    return read


def _read_fixed(size: int) -> ReadJson:
    def read(data: bytes, at: int, _: list[int]) -> tuple[Any, int]:
        return base64.b64encode(_piece(data, at, size)).decode(), at + size

    return read


def _piece(data: bytes, at: int, size: int) -> bytes:
    if size < 0:
        raise BadDatumError("a length is negative")
    if at + size > len(data):
        raise IndexError
    return data[at : at + size]


def _read_string(data: bytes, at: int, _: list[int]) -> tuple[str, int]:
    size, at = read_number(data, at)
    return _piece(data, at, size).decode(), at + size


def _read_bytes(data: bytes, at: int, _: list[int]) -> tuple[str, int]:
    size, at = read_number(data, at)
    return base64.b64encode(_piece(data, at, size)).decode(), at + size


def _read_boolean(data: bytes, at: int, _: list[int]) -> tuple[bool, int]:
    if data[at] > 1:
        raise BadDatumError(f"{data[at]} is no boolean")
    return data[at] == 1, at + 1


def _read_real(form: struct.Struct) -> ReadJson:
    def read(data: bytes, at: int, _: list[int]) -> tuple[Any, int]:
        (value,) = form.unpack_from(data, at)
        return value if math.isfinite(value) else str(value), at + form.size

    return read


_PRIMITIVES: dict[str, ReadJson] = {
    "null": lambda _, at, __: (None, at),
    "boolean": _read_boolean,
    "int": lambda data, at, _: read_number(data, at),
    "long": lambda data, at, _: read_number(data, at),
    "float": _read_real(struct.Struct("<f")),
    "double": _read_real(struct.Struct("<d")),
    "bytes": _read_bytes,
    "string": _read_string,
}
