"""The compiled decoder of a schema pair for the columns of one table: spans in, Arrow columns out.

Rules:

- The nodes store what the generated Python appends. A property test compares the rows of both.
- Numbers of columns are the numbers of the column nodes.
- It needs the C extension: see `headworks._native`.
"""

from __future__ import annotations

import secrets
import struct
from decimal import Decimal
from typing import Any

from hadoop_loader._decode.column_buffers import arrow_arrays
from hadoop_loader._decode.column_builders import (
    ArrowArray,
    ColumnNode,
    LeafNode,
    ListNode,
    MapNode,
    StructNode,
    nodes_of,
)
from hadoop_loader._decode.conversions import READER_NAME, conversion
from hadoop_loader._fetch.row_numbers import Buffer, Numbers, int64s, memory_of
from hadoop_loader._tables.columns import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    EMPTY_FIELD,
    INT,
    STRING,
    ColumnType,
    DecimalColumn,
    StructColumn,
    StructField,
)
from hadoop_loader._tables.defaults import column_default, union_names
from headworks._decoding.program import DecoderNode, DecoderTable, bounded, decimal_limits
from headworks._decoding.resolution import (
    Action,
    ArrayAction,
    ErrorAction,
    LeafAction,
    MapAction,
    ReaderUnionAction,
    RecordAction,
)
from headworks._native import decoder
from headworks.errors import SchemaError
from headworks.schema import EnumType, Field, Fixed

_Described = tuple[str, tuple[int, ...]]  # the layout of a column, and the columns below it

_NUMBERS = {
    "": "integer",
    "double": "as-double",
    "float32": "as-float",
    "millis_to_micros": "from-millis",
    "nanos_to_micros": "from-nanos",
}
_LAYOUTS: dict[ColumnType, str] = {
    STRING: "variable",
    BINARY: "variable",
    BOOLEAN: "bits",
    INT: "word32",
    DATE: "word32",
}
_CELLS = {"bits": struct.Struct("=?"), "word32": struct.Struct("=i"), "word64": struct.Struct("=q")}
_DOUBLE = struct.Struct("=d")
_MASK = (1 << 64) - 1


class ColumnProgram:
    """Decodes with the program of one schema pair."""

    def __init__(self, action: Action, columns: tuple[StructField, ...]) -> None:
        self._nodes, count = nodes_of(columns)  # of the columns
        nodes, self._failures = _table_of(action, columns, self._nodes)
        self._program = decoder.ColumnProgram(
            nodes=nodes,
            columns=tuple(_described(self._nodes, count)),
            tops=tuple(node.number for node in self._nodes),
            seed=secrets.randbits(64),
        )

    def decode(
        self, data: Buffer, starts: Numbers, ends: Numbers
    ) -> tuple[list[ArrowArray], list[tuple[int, str | None]]]:
        """Return the columns of the datums at `starts`..`ends`, and the numbers of the bad ones.

        A bad one has its reason if the two schemas are the cause, and not its bytes.
        """
        try:
            buffers, bad, nodes = self._program.decode(data, memory_of(starts), memory_of(ends))
        except OverflowError as error:
            raise SchemaError(
                "the values of one column of one batch take more than 2 GiB",
                rule="table-size",
                fix="shorten the default of the field, or keep it as a bytes field of its own",
            ) from error
        reasons = map(self._failures.get, nodes)
        return arrow_arrays(self._nodes, buffers), [*zip(bad, reasons, strict=True)]

    def peek(self, data: Buffer, starts: Numbers, ends: Numbers) -> Numbers:
        """Return what the last column takes from each datum, without reading what follows it.

        The column must hold numbers of 64 bits. A bad datum gets the number of the one before it.
        """
        return int64s(self._program.peek(data, memory_of(starts), memory_of(ends)))


def _table_of(
    action: Action, columns: tuple[StructField, ...], nodes: tuple[ColumnNode, ...]
) -> tuple[tuple[DecoderNode, ...], dict[int, str]]:
    """Return the table of `action` for the nodes of `columns`, and the reasons of its failures."""
    table = _ColumnTable()
    top = StructNode(-1, StructColumn(columns), nodes)
    if isinstance(action, (RecordAction, ErrorAction)) or not columns:
        return table.finish(table.read(action, top)), table.failures
    return table.finish(table.read(action, nodes[0])), table.failures


def _described(nodes: tuple[ColumnNode, ...], count: int) -> list[_Described]:
    found: list[_Described] = [("presence", ())] * count

    def describe(node: ColumnNode) -> None:
        below: tuple[ColumnNode, ...] = ()
        if isinstance(node, StructNode):
            layout, below = "presence", node.members
        elif isinstance(node, ListNode):
            layout, below = "items", (node.item,)
        elif isinstance(node, MapNode):
            layout, below = "items", (node.key, node.value)
        else:
            layout = _layout(node)
        found[node.number] = layout, tuple(each.number for each in below)
        for each in below:
            describe(each)

    for node in nodes:
        describe(node)
    return found


def _layout(node: LeafNode) -> str:
    if isinstance(node.type, DecimalColumn):
        return "word128"
    return _LAYOUTS.get(node.type, "word64")


class _ColumnTable(DecoderTable[ColumnNode]):
    """The table of a decoder whose values go to columns: a target is a column node."""

    reader_name = READER_NAME

    def leaf(self, action: LeafAction, target: ColumnNode) -> int:
        wire = action.writer.kind
        if wire in ("int", "long"):
            kind, size = _NUMBERS[conversion(action)], 32 if wire == "int" else 64
            return self._store(kind, target, size=size)
        if wire in ("boolean", "float", "double"):
            return self._store(wire, target)
        if wire == "null":
            return self._store("null", target)
        if isinstance(target, StructNode):  # a duration: three numbers
            members = tuple(self._store("unsigned", member) for member in target.members)
            return self._store("steps", target, members)
        size = bounded(action.writer.size) if isinstance(action.writer, Fixed) else -1
        kind, logical = conversion(action), action.reader.logical
        if kind in ("text", "bytes"):
            return self._store(kind, target, size=size)
        if kind == "uuid":
            return self._store("uuid-fixed", target, size=size)
        assert logical is not None
        name = "decimal" if kind == "decimal" else "wide-decimal"
        return self._store(
            name, target, size=size, data=decimal_limits(logical), scale=logical.scale
        )

    def symbol(self, enum: EnumType, symbol: str, target: ColumnNode) -> int:  # noqa: ARG002
        return self._value(target, symbol)

    def default(self, field: Field, target: ColumnNode) -> int:
        return self._value(target, column_default(field))

    def record(self, action: RecordAction, target: ColumnNode) -> int:
        assert isinstance(target, StructNode)
        steps = [
            self.read(step, target if field is None else target.member(field.name))
            for field, step in action.steps
        ]
        if not action.reader.fields and target.number >= 0:
            steps.append(self._value(target.member(EMPTY_FIELD), True))
        return self._store("steps", target, tuple(steps))

    def items(self, action: ArrayAction | MapAction, target: ColumnNode) -> int:
        least = bounded(action.min_size)
        if isinstance(action, ArrayAction):
            assert isinstance(target, ListNode)
            item = self.read(action.item, target.item)
            return self._store("list", target, (item,), size=least)
        assert isinstance(target, MapNode)
        value = self.read(action.value, target.value)
        return self._store("map", target, (value,), size=least + 1)

    def reader_union(self, action: ReaderUnionAction, target: ColumnNode) -> int:
        # A branch of a union that is several columns fills one of them; the others are null.
        names = union_names(action.union)
        if names is None or action.branch not in names:
            return self.read(action.action, target)
        assert isinstance(target, StructNode)
        members = (
            self.read(action.action, member)
            if f.name == names[action.branch]
            else self._store("null", member)
            for f, member in zip(target.type.fields, target.members, strict=True)
        )
        return self._store("steps", target, tuple(members))

    def _store(
        self,
        kind: str,
        target: ColumnNode,
        below: tuple[int, ...] = (),
        size: int = 0,
        data: bytes | None = None,
        scale: int = 0,
    ) -> int:
        return self.add(DecoderNode(kind, below, target.number, size, data, scale))

    def _value(self, node: ColumnNode, value: Any) -> int:
        """Return the node that stores a constant in every column below `node`."""
        if value is None:
            return self._store("null", node)
        if isinstance(node, StructNode):
            members = zip(node.type.fields, node.members, strict=True)
            below = tuple(self._value(member, value[f.name]) for f, member in members)
            return self._store("steps", node, below)
        if isinstance(node, ListNode):
            items = [self._value(node.item, item) for item in value]
        elif isinstance(node, MapNode):
            items = []
            for key, item in value.items():
                items += [self._value(node.key, key), self._value(node.value, item)]
        else:
            return self._store("constant", node, data=_cell(node, value))
        end = self._store("constant-list", node)
        return self.add(DecoderNode("steps", (*items, end)))


def _cell(node: LeafNode, value: Any) -> bytes:
    """Return a constant as the bytes of a column's cell."""
    if isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        return struct.pack("=QQ", unscaled & _MASK, unscaled >> 64 & _MASK)
    if isinstance(value, float) or node.type == DOUBLE:
        return _DOUBLE.pack(value)
    return _CELLS[_layout(node)].pack(value)
