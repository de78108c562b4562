"""Events without a class: dicts that know the full name of their record.

Rules:

- An event is a dict in its writer's schema, as fastavro reads it. A record's dict has its name as
  an attribute, and is otherwise a dict like any other.
- In a schema that is a union at the top, the index before the bytes names the branch. Two records
  with the same fields are thus told apart.
"""

from __future__ import annotations

from typing import Any

from consumer_sdk._generated_decoder import Decode
from headworks._decoding.plain_values import PlainDecoder
from headworks._decoding.primitives import read_long
from headworks.codec import EventType


class RecordDict(dict[str, Any]):
    """The fields of a record, and its full name."""

    __slots__ = ("name",)

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.name = name


class BranchDict(RecordDict):
    """A record of a schema that is a union of several at the top."""

    __slots__ = ()


def event_name(event: object) -> str | None:
    """Return the full name of an event's record; None if it is no record."""
    if isinstance(event, RecordDict):
        return event.name
    kind = getattr(type(event), "__headworks__", None)
    return kind.name if isinstance(kind, EventType) else None


def tagged(event: object) -> object:
    """Return an event as Avro's JSON has it: with its name around it if it is of a union."""
    return {event.name: event} if isinstance(event, BranchDict) else event


def to_dicts(text: str) -> Decode:
    """Return what decodes the values of a writer's schema to dicts."""
    decoder = PlainDecoder(text)
    writer, named = decoder.writer, decoder.named
    branches = writer if isinstance(writer, list) else [writer]
    names = [_record_name(named.get(b, b) if isinstance(b, str) else b) for b in branches]
    made = BranchDict if sum(name is not None for name in names) > 1 else RecordDict

    def decode(value: bytes, start: int) -> Any:
        plain = decoder.decode(value, start)
        name = names[_branch(value, start) if isinstance(writer, list) else 0]
        return made(name, plain) if name is not None and isinstance(plain, dict) else plain

    return decode


def _branch(value: bytes, start: int) -> int:
    first = value[start]
    return (first >> 1) ^ -(first & 1) if first < 128 else read_long(value, start + 1, first)[0]


def _record_name(avro: Any) -> str | None:
    is_record = isinstance(avro, dict) and avro.get("type") in ("record", "error")
    return str(avro["name"]) if is_record else None
