"""The compiled form of `datum_check`: the table that tells good data of a schema from bad.

Rule: it stores nothing but the keys of the maps that are being read, which must differ.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from headworks._decoding.program import DecoderNode, DecoderTable, bounded, decimal_limits
from headworks._decoding.resolution import (
    Action,
    ArrayAction,
    LeafAction,
    MapAction,
    RecordAction,
    RecordPair,
    RecursionAction,
    is_millis,
)
from headworks._native import decoder
from headworks.schema import EnumType, Field, Fixed

if TYPE_CHECKING:
    from headworks._native._decoder import ColumnProgram

_KEYS = 0  # the only column


def datum_program(action: Action) -> ColumnProgram:
    """Return the program of a schema that is read as itself. SchemaError if it is too large."""
    table = _CheckTable()
    nodes = table.finish(table.read(action, None))
    columns = (("variable", ()),)
    return decoder.ColumnProgram(nodes=nodes, columns=columns, tops=(), seed=secrets.randbits(64))


class _CheckTable(DecoderTable[None]):
    """The table of a decoder whose values go nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[RecordPair, int] = {}

    def leaf(self, action: LeafAction, target: None) -> int:  # noqa: ARG002
        schema = action.writer
        kind, logical = schema.kind, schema.logical
        size = bounded(schema.size) if isinstance(schema, Fixed) else -1
        if kind == "int":
            return self.add(DecoderNode("integer", size=32))
        if kind == "long":
            return self.add(
                DecoderNode("from-millis" if is_millis(logical) else "integer", size=64)
            )
        if kind == "null":
            return self._nothing()
        if kind in ("boolean", "float", "double"):
            return self.add(DecoderNode(kind))
        if logical is not None and logical.name == "decimal":
            return self.add(DecoderNode("decimal", size=size, data=decimal_limits(logical)))
        return self.add(DecoderNode("text" if kind == "string" else "bytes", size=size))

    def symbol(self, enum: EnumType, symbol: str, target: None) -> int:  # noqa: ARG002
        return self._nothing()

    def default(self, field: Field, target: None) -> int:  # noqa: ARG002
        raise AssertionError("a schema reads its own data without defaults")

    def record(self, action: RecordAction, target: None) -> int:
        at = self._records[action.pair] = self.add(DecoderNode("steps"))
        steps = tuple(self.read(step, target) for _, step in action.steps)
        self.replace(at, DecoderNode("steps", steps))
        return at

    def recursion(self, action: RecursionAction) -> int:
        return self._records[action.pair]

    def items(self, action: ArrayAction | MapAction, target: None) -> int:
        least = bounded(action.min_size)
        if isinstance(action, ArrayAction):
            return self.add(DecoderNode("list", (self.read(action.item, target),), size=least))
        value = (self.read(action.value, target),)
        return self.add(DecoderNode("keys", value, _KEYS, size=least + 1))

    def _nothing(self) -> int:
        return self.add(DecoderNode("skip-width"))
