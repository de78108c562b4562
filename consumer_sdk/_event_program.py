"""The decoder of a schema pair into events: compiled if that was built, else the generated Python.

Rules:

- A conversion is defined by its Python expression (`_conversions`). The compiled decoder has a few
  of them by itself, and calls the expression of any other.
- The generated Python decodes what the compiled decoder declines, which includes every bad datum.
  So an error has one text.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID, SafeUUID

from consumer_sdk._conversions import GIVEN, expression
from consumer_sdk._default_values import event_default
from consumer_sdk._generated_decoder import Decode, compiled, is_immutable
from headworks._decoding.program import DecoderNode, DecoderTable, bounded
from headworks._decoding.resolution import (
    ArrayAction,
    LeafAction,
    MapAction,
    RecordAction,
    RecordPair,
    RecursionAction,
    resolve,
)
from headworks._native import decoder
from headworks.codec._event import RecordType
from headworks.schema import EnumType, Field, Fixed, Primitive, Schema
from headworks.schema._model import Logical


def event_decoder(writer: Schema, reader: Schema, types: Mapping[str, type]) -> Decode:
    """Return the function that decodes data of `writer` to objects of `reader`, a record.

    `types` are the generated classes of the reader's named types, by full name.
    """
    python = compiled(writer, reader, types)
    if decoder is None:
        return python
    table = _EventTable(types)
    nodes = table.finish(table.read(resolve(writer, reader), None))
    try:
        return decoder.EventProgram(nodes=nodes, decode=python).decode
    except TypeError:  # a class was changed after its generation
        return python


def _instant(name: str) -> str:
    long = Primitive("long", Logical(name))
    return expression(long, long)


_KINDS = {  # conversions that the compiled decoder does by itself
    "v.decode()": "text",
    "float(v)": "as-double",
    "float32(v)": "as-float",
    _instant("timestamp-millis"): "instant-millis",
    _instant("timestamp-micros"): "instant-micros",
}
_UUIDS = ("uuid_of(v)", "UUID(bytes=v)")
_WIRES = {"int": "integer", "long": "integer", "string": "bytes", "fixed": "bytes"}


class _EventTable(DecoderTable[None]):
    """The table of a decoder whose values are objects; a value needs no target."""

    def __init__(self, types: Mapping[str, type]) -> None:
        super().__init__()
        self._types = types  # generated classes, by full name
        self._records: dict[RecordPair, int] = {}  # nodes

    def leaf(self, action: LeafAction, target: None) -> int:  # noqa: ARG002
        writer = action.writer
        if writer.kind == "null":
            return self._object(None)
        size = {"int": 32, "long": 64}.get(writer.kind, -1)
        size = bounded(writer.size) if isinstance(writer, Fixed) else size
        kind = _WIRES.get(writer.kind, writer.kind)
        text = expression(writer, action.reader)
        if text == "v":
            return self.add(DecoderNode(kind, size=size))
        if text in _KINDS:
            return self.add(DecoderNode(_KINDS[text], size=size))
        if text in _UUIDS:
            number = self.add(DecoderNode("uuid-number", size=size))
            below = number, self._object(SafeUUID.unknown)
            return self.add(DecoderNode("record", below, size=1, value=(UUID, "int", "is_safe")))
        raw = self.add(DecoderNode(kind, size=size))
        return self._call(eval(f"lambda v: {text}", dict(GIVEN)), raw)

    def symbol(self, enum: EnumType, symbol: str, target: None) -> int:  # noqa: ARG002
        return self._object(self._types[enum.name](symbol))

    def default(self, field: Field, target: None) -> int:  # noqa: ARG002
        value = event_default(field, self._types)
        if is_immutable(value):
            return self._object(value)
        return self._call(partial(copy.deepcopy, value))

    def record(self, action: RecordAction, target: None) -> int:
        at = self._records[action.pair] = self.add(DecoderNode("fail"))
        cls: Any = self._types[action.reader.name]
        type_: RecordType[Any] = cls.__headworks__
        below = tuple(self.read(step, target) for _, step in action.steps)
        names = [None if field is None else type_.fields[field.name] for field, _ in action.steps]
        self.replace(at, DecoderNode("record", below, value=(cls, *names)))
        return at

    def recursion(self, action: RecursionAction) -> int:
        return self._records[action.pair]

    def items(self, action: ArrayAction | MapAction, target: None) -> int:
        least = bounded(action.min_size)
        if isinstance(action, MapAction):
            return self.add(DecoderNode("map", (self.read(action.value, target),), size=least + 1))
        return self.add(DecoderNode("list", (self.read(action.item, target),), size=least))

    def _object(self, value: Any) -> int:
        return self.add(DecoderNode("object", value=value))

    def _call(self, function: Callable[..., Any], *below: int) -> int:
        return self.add(DecoderNode("call", below, value=function))
