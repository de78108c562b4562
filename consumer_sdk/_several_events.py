"""Several events of one topic: the schema that a message was written with chooses the class.

Rules:

- A writer's schema that is a union at the top names the class of each branch. Any other is for the
  class of its name. If it is no union, an only class resolves a record of another name, or fails.
- Among classes of one name, such as those of two versions, the class of the writer's own schema is
  taken, or else the first. A class of the writer's name comes before one that has it as an alias.
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
from headworks.schema._canonical import canonical_text
from headworks.schema._governance import event_record

_Reader = tuple[Record, EventType[Any]]


def decoder_of(kinds: Sequence[EventType[Any]]) -> Callable[[str], Decode]:
    """Return what makes the decoding function of a writer's schema, for the classes of a topic."""
    readers = [(event_record(parse(kind.schema), kind.name), kind) for kind in kinds]
    classes = " or ".join(kind.name for kind in kinds)

    def for_class(writer: Schema, *, any_name: bool) -> Decode | None:
        found = _chosen(writer, readers) if isinstance(writer, Record) else None
        if found is None and any_name:
            found = readers[0]
        return None if found is None else event_decoder(writer, found[0], found[1].types)

    def decoder(text: str) -> Decode:
        writer = parse(text, strict=False)
        if isinstance(writer, Union):
            found = [for_class(branch, any_name=False) for branch in writer.branches]
            records = sum(isinstance(branch, Record) for branch in writer.branches)
            if any(found) or records > 1:
                return _of_union(writer, found, classes)
        only = for_class(writer, any_name=len(readers) == 1 and not kinds[0].branch)
        return _refusing(writer, classes) if only is None else only

    return decoder


def _chosen(writer: Record, readers: Sequence[_Reader]) -> _Reader | None:
    """Return the reader for records of a writer; None if no class has its name."""
    named = [each for each in readers if each[0].name == writer.name]
    if len(named) > 1:
        wanted = canonical_text(writer)
        named = [each for each in named if canonical_text(each[0]) == wanted] or named
    renamed = (each for each in readers if writer.name in each[0].aliases)
    return named[0] if named else next(renamed, None)


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
