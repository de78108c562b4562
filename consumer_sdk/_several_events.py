"""Several events of one topic: the schema that a message was written with chooses the class.

Rules:

- A writer's schema that is a union at the top names the class of each branch. Any other is for the
  class of its name, or else for the first class, which then resolves it or fails.
- An event that no class is for is an error, and never another class's event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from consumer_sdk._event_program import event_decoder
from consumer_sdk._generated_decoder import Decode
from headworks._decoding.primitives import read_long
from headworks.codec._event import EventType
from headworks.schema import Record, Schema, Union, parse


def decoder_of(kinds: Sequence[EventType[Any]]) -> Callable[[str], Decode]:
    """Return what makes the decoding function of a writer's schema, for the classes of a topic."""
    readers = [(parse(kind.schema), kind) for kind in kinds]
    classes = " or ".join(kind.name for kind in kinds)

    def for_class(writer: Schema, *, any_name: bool) -> Decode | None:
        for reader, kind in readers:
            names = (reader.name, *reader.aliases) if isinstance(reader, Record) else ()
            if isinstance(writer, Record) and writer.name in names:
                return event_decoder(writer, reader, kind.types)
        reader, kind = readers[0]
        return event_decoder(writer, reader, kind.types) if any_name else None

    def decoder(text: str) -> Decode:
        writer = parse(text, strict=False)
        if isinstance(writer, Union):
            found = [for_class(branch, any_name=False) for branch in writer.branches]
            records = sum(isinstance(branch, Record) for branch in writer.branches)
            if any(found) or records > 1:
                return _of_union(writer, found, classes)
        only = for_class(writer, any_name=len(readers) == 1)
        return _refusing(writer, classes) if only is None else only

    return decoder


def _refusing(writer: Schema, classes: str) -> Decode:
    name = writer.name if isinstance(writer, Record) else writer.kind

    def decode(*_: object) -> Any:
        raise ValueError(f"it is a {name}, and this consumer reads {classes}")

    return decode


def _of_union(writer: Union, decoders: Sequence[Decode | None], classes: str) -> Decode:
    def decode(value: bytes, start: int) -> Any:
        first, start = value[start], start + 1
        branch = (first >> 1) ^ -(first & 1)
        if first > 127:
            branch, start = read_long(value, start, first)
        if not 0 <= branch < len(decoders):
            raise ValueError(f"it is of branch {branch}, and its schema has {len(decoders)}")
        found = decoders[branch]
        if found is None:
            found = _refusing(writer.branches[branch], classes)
        return found(value, start)

    return decode
