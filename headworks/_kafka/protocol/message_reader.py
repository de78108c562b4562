"""Read a message from bytes that a client sent: kio's schemas, and a reader of our own.

kio's reader allocates what the length of an array announces, so one packet could end the process.
This reader allocates nothing before the bytes are there.

Rules:

- Every length is checked against the remaining bytes. A count of elements cannot exceed them,
  because an element takes at least one byte. Single counts and their sum are limited as well.
- The result is an instance of kio's dataclass of that version. Unknown tagged fields are skipped.
- Bytes that do not fit raise `MalformedError`.
- Text that is not UTF-8 is read with U+FFFD in its place, as Kafka reads it. Clients in C and Go
  send any bytes as the metadata of an offset. A refusal would make them repeat the request.
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


class RequestBody(bytes):
    """The body of a request, and how many array elements it may still have."""

    left = MAX_REQUEST_ELEMENTS


_Read = Callable[[RequestBody, int], tuple[Any, int]]
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


class MessageField(typing.NamedTuple):
    """A field of a message: its type, and whether it is an array, nullable, or tagged."""

    name: str
    nested: Any
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any


@cache
def fields_of(message: Any) -> tuple[MessageField, ...]:
    """Return the fields of one of kio's message classes."""
    hints = typing.get_type_hints(message)
    return tuple(_field_of(field, hints[field.name]) for field in dataclasses.fields(message))


def _field_of(field: dataclasses.Field[Any], hint: Any) -> MessageField:
    options = (hint, *typing.get_args(hint))
    array = next((o for o in options if typing.get_origin(o) is tuple), None)
    inner = (typing.get_args(array)[0],) if array is not None else options
    nested = next((o for o in inner if dataclasses.is_dataclass(o)), None)
    return MessageField(
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
    fields = fields_of(message)
    plain = [(field.name, _reader(field, flexible)) for field in fields if field.tag is None]
    tagged = {
        field.tag: (field.name, _reader(field._replace(nullable=False), flexible))
        for field in fields
        if field.tag is not None
    }
    missing = {
        field.name: () if field.array else field.default
        for field in fields
        if field.tag is not None
    }

    def read(buffer: RequestBody, position: int) -> tuple[Any, int]:
        values = dict(missing)
        for name, field in plain:
            values[name], position = field(buffer, position)
        if flexible:
            position = _read_tags(buffer, position, tagged, values)
        return message(**values), position

    return read


def _read_tags(
    buffer: RequestBody, position: int, known: dict[int, tuple[str, _Read]], values: dict[str, Any]
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


def _reader(field: MessageField, flexible: bool) -> _Read:
    if field.array:
        one = field._replace(array=False, nullable=False)
        return _array(_reader(one, flexible), field, _count(flexible))
    if field.nested is not None:
        nested = message_reader(field.nested)
        return _nullable(nested) if field.nullable else nested
    if field.kind in _NUMBERS:
        return _number(_NUMBERS[field.kind])
    if field.kind in ("string", "bytes", "records"):
        return _text_or_bytes(field, _size(field.kind, flexible))
    if field.kind in ("timedelta_i32", "timedelta_i64"):
        return _duration(_number(">i" if field.kind.endswith("32") else ">q"))
    if field.kind == "uuid":
        return _uuid
    raise TypeError(f"no reader for the protocol's type {field.kind!r}")


def _number(form: str) -> _Read:
    layout = struct.Struct(form)

    def read(buffer: RequestBody, position: int) -> tuple[Any, int]:
        return layout.unpack_from(buffer, position)[0], position + layout.size

    return read


def _count(flexible: bool) -> _Read:
    """Return a reader of a number of elements; -1 is null."""
    if not flexible:
        return _number(">i")

    def read(buffer: RequestBody, position: int) -> tuple[int, int]:
        count, position = read_unsigned(buffer, position)
        return count - 1, position

    return read


def _size(kind: str, flexible: bool) -> _Read:
    """Return a reader of the length of a string or of bytes; -1 is null."""
    if flexible:
        return _count(flexible=True)
    return _number(">h" if kind == "string" else ">i")


def _array(one: _Read, field: MessageField, count_reader: _Read) -> _Read:
    def read(buffer: RequestBody, position: int) -> tuple[Any, int]:
        count, position = count_reader(buffer, position)
        if count == -1 and field.nullable:
            return None, position
        if not 0 <= count <= len(buffer) - position:
            raise MalformedError(f"{field.name} cannot have {count} elements")
        check_count(field.name, count)
        buffer.left -= count
        if buffer.left < 0:
            raise MalformedError(f"its arrays have more than {MAX_REQUEST_ELEMENTS} elements")
        items = []
        for _ in range(count):
            item, position = one(buffer, position)
            items.append(item)
        return tuple(items), position

    return read


def _text_or_bytes(field: MessageField, size_reader: _Read) -> _Read:
    text = field.kind == "string"

    def read(buffer: RequestBody, position: int) -> tuple[Any, int]:
        size, position = size_reader(buffer, position)
        if size == -1 and field.nullable:
            return None, position
        end = position + size
        if size < 0 or end > len(buffer):
            raise MalformedError(f"{field.name} cannot have {size} bytes")
        value = buffer[position:end]
        return (value.decode(errors="replace") if text else value), end

    return read


def _nullable(nested: _Read) -> _Read:
    """Return a reader of a message behind a byte that is negative if there is none."""
    presence = _number(">b")

    def read(buffer: RequestBody, position: int) -> tuple[Any, int]:
        mark, position = presence(buffer, position)
        return (None, position) if mark < 0 else nested(buffer, position)

    return read


def _duration(number: _Read) -> _Read:
    def read(buffer: RequestBody, position: int) -> tuple[timedelta, int]:
        value, position = number(buffer, position)
        return timedelta(milliseconds=value), position

    return read


def _uuid(buffer: RequestBody, position: int) -> tuple[uuid.UUID | None, int]:
    end = position + 16
    if end > len(buffer):
        raise MalformedError("the request ends inside an id")
    data = buffer[position:end]
    return (uuid.UUID(bytes=data) if any(data) else None), end
