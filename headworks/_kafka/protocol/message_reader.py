"""Read a message from bytes that a client sent: kio's schemas, and a reader of our own.

kio's reader allocates what the length of an array announces, so one packet could end the process.
This reader allocates nothing before the bytes are there.

Rules:

- Every length is checked against the remaining bytes. A count of elements cannot exceed them,
  because an element takes at least one byte. Single counts and their sum are limited as well.
- The result is an instance of kio's dataclass of that version. Unknown tagged fields are skipped.
- Bytes that do not fit raise `MalformedError`.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

from headworks._kafka.protocol.frame import (
    MAX_REQUEST_ELEMENTS,
    MalformedError,
    check_count,
    read_tag_count,
)
from headworks._kafka.records.varint import read_unsigned

__all__ = ["Body", "Shape", "message_reader", "shape_of"]


class Body(bytes):
    """The body of a request, and how many array elements it may still have."""

    left = MAX_REQUEST_ELEMENTS


_Read = Callable[[Body, int], tuple[Any, int]]
_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "uint32": ">I",
    "float64": ">d",
    "bool": ">?",
    "error_code": ">h",
}


class Shape(typing.NamedTuple):
    """A field of a message: its type, and whether it is an array, nullable, or tagged."""

    name: str
    nested: Any
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any


@cache
def shape_of(message: Any) -> tuple[Shape, ...]:
    """Return the fields of one of kio's message classes."""
    hints = typing.get_type_hints(message)
    return tuple(_shape(field, hints[field.name]) for field in dataclasses.fields(message))


def _shape(field: dataclasses.Field[Any], hint: Any) -> Shape:
    options = (hint, *typing.get_args(hint))
    array = next((o for o in options if typing.get_origin(o) is tuple), None)
    inner = (typing.get_args(array)[0],) if array is not None else options
    nested = next((o for o in inner if dataclasses.is_dataclass(o)), None)
    return Shape(
        field.name,
        nested,
        field.metadata.get("kafka_type", ""),
        array is not None,
        type(None) in typing.get_args(hint),
        field.metadata.get("tag"),
        field.default,
    )


@cache
def message_reader(message: Any) -> _Read:
    """Return a function that reads `message` from a buffer at a position."""
    flexible: bool = message.__flexible__
    shapes = shape_of(message)
    plain = [(shape.name, _reader(shape, flexible)) for shape in shapes if shape.tag is None]
    tagged = {
        shape.tag: (shape.name, _reader(shape._replace(nullable=False), flexible))
        for shape in shapes
        if shape.tag is not None
    }
    missing = {
        shape.name: () if shape.array else shape.default
        for shape in shapes
        if shape.tag is not None
    }

    def read(buffer: Body, position: int) -> tuple[Any, int]:
        values = dict(missing)
        for name, field in plain:
            values[name], position = field(buffer, position)
        if flexible:
            position = _read_tags(buffer, position, tagged, values)
        return message(**values), position

    return read


def _read_tags(
    buffer: Body, position: int, known: dict[int, tuple[str, _Read]], values: dict[str, Any]
) -> int:
    count, position = read_tag_count(buffer, position)
    for _ in range(count):
        tag, position = read_unsigned(buffer, position)
        size, position = read_unsigned(buffer, position)
        end = position + size
        if end > len(buffer):
            raise MalformedError("tagged fields run over the request")
        if tag in known:
            name, field = known[tag]
            values[name], _ = field(buffer, position)
        position = end
    return position


def _reader(shape: Shape, flexible: bool) -> _Read:
    if shape.array:
        one = shape._replace(array=False, nullable=False)
        return _array(_reader(one, flexible), shape, _count(flexible))
    if shape.nested is not None:
        return message_reader(shape.nested)
    if shape.kind in _NUMBERS:
        return _number(_NUMBERS[shape.kind])
    if shape.kind in ("string", "bytes", "records"):
        return _text_or_bytes(shape, _size(shape.kind, flexible))
    if shape.kind in ("timedelta_i32", "timedelta_i64"):
        return _duration(_number(">i" if shape.kind.endswith("32") else ">q"))
    if shape.kind == "uuid":
        return _uuid
    raise TypeError(f"no reader for the protocol's type {shape.kind!r}")


def _number(form: str) -> _Read:
    layout = struct.Struct(form)

    def read(buffer: Body, position: int) -> tuple[Any, int]:
        return layout.unpack_from(buffer, position)[0], position + layout.size

    return read


def _count(flexible: bool) -> _Read:
    """Return a reader of a number of elements; -1 is null."""
    if not flexible:
        return _number(">i")

    def read(buffer: Body, position: int) -> tuple[int, int]:
        count, position = read_unsigned(buffer, position)
        return count - 1, position

    return read


def _size(kind: str, flexible: bool) -> _Read:
    """Return a reader of the length of a string or of bytes; -1 is null."""
    if flexible:
        return _count(flexible=True)
    return _number(">h" if kind == "string" else ">i")


def _array(one: _Read, shape: Shape, count_reader: _Read) -> _Read:
    def read(buffer: Body, position: int) -> tuple[Any, int]:
        count, position = count_reader(buffer, position)
        if count == -1 and shape.nullable:
            return None, position
        if not 0 <= count <= len(buffer) - position:
            raise MalformedError(f"{shape.name} cannot have {count} elements")
        check_count(shape.name, count)
        buffer.left -= count
        if buffer.left < 0:
            raise MalformedError(f"its arrays have more than {MAX_REQUEST_ELEMENTS} elements")
        items = []
        for _ in range(count):
            item, position = one(buffer, position)
            items.append(item)
        return tuple(items), position

    return read


def _text_or_bytes(shape: Shape, size_reader: _Read) -> _Read:
    text = shape.kind == "string"

    def read(buffer: Body, position: int) -> tuple[Any, int]:
        size, position = size_reader(buffer, position)
        if size == -1 and shape.nullable:
            return None, position
        end = position + size
        if size < 0 or end > len(buffer):
            raise MalformedError(f"{shape.name} cannot have {size} bytes")
        value = buffer[position:end]
        return (value.decode() if text else value), end

    return read


def _duration(number: _Read) -> _Read:
    def read(buffer: Body, position: int) -> tuple[timedelta, int]:
        value, position = number(buffer, position)
        return timedelta(milliseconds=value), position

    return read


def _uuid(buffer: Body, position: int) -> tuple[uuid.UUID | None, int]:
    end = position + 16
    if end > len(buffer):
        raise MalformedError("the request ends inside an id")
    data = buffer[position:end]
    return (uuid.UUID(bytes=data) if any(data) else None), end
