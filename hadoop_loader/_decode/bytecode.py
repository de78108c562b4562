"""Resolved actions as bytecode: the numbers that `decode_vm` runs.

Rules:

- It has the same reads, nodes, and conversions as the generated Python. A property test compares
  the rows of both.
- A writer's record that is skipped is a subroutine, so recursion and repetition cost nothing.
- Text of a schema (symbols, defaults) lies in one pool of bytes that instructions point into.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from hadoop_loader._decode.column_builders import (
    ColumnNode,
    LeafNode,
    ListNode,
    MapNode,
    StructNode,
)
from hadoop_loader._decode.conversions import conversion
from hadoop_loader._decode.generated_decoder import schema_too_large
from hadoop_loader._decode.opcodes import INSTRUCTION_WIDTH, Opcode
from hadoop_loader._tables.columns import (
    DOUBLE,
    EMPTY_FIELD,
    DecimalColumn,
    StructColumn,
    StructField,
)
from hadoop_loader._tables.defaults import column_default, union_names
from headworks._decoding.primitives import takes_nothing
from headworks._decoding.resolution import (
    Action,
    ArrayAction,
    DefaultAction,
    EnumAction,
    ErrorAction,
    LeafAction,
    MapAction,
    ReaderUnionAction,
    RecordAction,
    SkipAction,
    WriterUnionAction,
)
from headworks.schema import Array, EnumType, Fixed, MapType, Record, Schema, Union

__all__ = ["Bytecode", "assemble"]

Numbers = npt.NDArray[np.int64]

_MAX_INSTRUCTIONS = 400_000
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = {"": 0, "double": 1, "float32": 2, "millis_to_micros": 3, "nanos_to_micros": 4}
_SIMPLE = {"boolean": Opcode.BOOLEAN, "float": Opcode.FLOAT, "double": Opcode.DOUBLE}
_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")
_HALVES = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class Bytecode:
    """Instructions (one row each), and the numbers and bytes that they point into."""

    code: Numbers  # one row per instruction: the opcode and its arguments
    tables: Numbers  # jump tables and lists of nodes
    pool: npt.NDArray[np.uint8]  # symbols, defaults, and decimal limits


def assemble(
    read: Action, columns: tuple[StructField, ...], nodes: tuple[ColumnNode, ...]
) -> Bytecode:
    """Return the bytecode of `read` for the nodes of `columns`.

    Raises SchemaError if the schema is too large.
    """
    writer = _Assembler()
    top = StructNode(-1, StructColumn(columns), nodes)
    if isinstance(read, RecordAction):
        writer.record(read, top, present=False)
    elif isinstance(read, ErrorAction) or not columns:
        writer.read(read, top)
    else:
        writer.read(read, nodes[0])
    return writer.finish()


class _Assembler:
    """Writes the instructions of one decoder."""

    def __init__(self) -> None:
        self._code: list[tuple[int, ...]] = []  # instructions written so far
        self._tables: list[int] = []  # see Bytecode
        self._pool = bytearray()  # see Bytecode
        self._pooled: dict[bytes, int] = {}  # where bytes begin in the pool
        self._routines: dict[int, int] = {}  # subroutine of each skipped record, by id
        self._wanted: list[tuple[int, Record]] = []  # calls whose subroutine is not written yet

    def finish(self) -> Bytecode:
        """Write the subroutines that are called, and return the bytecode."""
        self._emit(Opcode.END)
        while self._wanted:
            at, schema = self._wanted.pop()
            if id(schema) not in self._routines:
                self._routines[id(schema)] = len(self._code)
                for f in schema.fields:
                    self._skip(f.type)
                self._emit(Opcode.RETURN)
            self._patch(at, 1, self._routines[id(schema)])
        code = np.zeros((len(self._code), INSTRUCTION_WIDTH), np.int64)
        for i, row in enumerate(self._code):
            code[i, : len(row)] = row
        return Bytecode(
            code,
            np.array(self._tables or [0], np.int64),
            np.frombuffer(bytes(self._pool) or b"\0", np.uint8),
        )

    def read(self, read: Action, node: ColumnNode) -> None:
        """Write the instructions that carry out `read` and append to `node`."""
        if isinstance(read, LeafAction):
            self._leaf(read, node)
        elif isinstance(read, EnumAction):
            table = [self._text(s) if s is not None else (-1, 0) for s in read.symbols]
            at = self._table([number for entry in table for number in entry])
            self._emit(Opcode.SYMBOL, node.number, at, len(table))
        elif isinstance(read, RecordAction):
            assert isinstance(node, StructNode)
            self.record(read, node, present=True)
        elif isinstance(read, WriterUnionAction):
            self._jumps(len(read.branches), lambda i: self.read(read.branches[i], node))
        elif isinstance(read, ReaderUnionAction):
            self._branch(read, node)
        elif isinstance(read, DefaultAction):
            self._value(node, column_default(read.field))
        elif isinstance(read, ErrorAction):
            self._emit(Opcode.FAIL)
        elif isinstance(read, (ArrayAction, MapAction)):
            self._blocks(read, node)
        else:
            assert isinstance(read, SkipAction), "recursive schemas have no columns"
            self._skip(read.schema)

    def record(self, read: RecordAction, node: StructNode, *, present: bool) -> None:
        """Write the instructions of a record; if `present`, the struct itself is marked present."""
        if present:
            self._emit(Opcode.PRESENT, node.number)
        for field, step in read.steps:
            if field is None:
                assert isinstance(step, SkipAction)
                self._skip(step.schema)
            else:
                self.read(step, node.member(field.name))
        if not read.reader.fields and present:
            self._value(node.member(EMPTY_FIELD), True)

    def _emit(self, op: Opcode, *arguments: int) -> int:
        if len(self._code) >= _MAX_INSTRUCTIONS:
            raise schema_too_large()
        self._code.append((int(op), *arguments))
        return len(self._code) - 1

    def _patch(self, at: int, argument: int, value: int) -> None:
        row = list(self._code[at])
        row[argument] = value
        self._code[at] = tuple(row)

    def _table(self, numbers: list[int]) -> int:
        self._tables.extend(numbers)
        return len(self._tables) - len(numbers)

    def _bytes(self, raw: bytes) -> int:
        if raw not in self._pooled:
            self._pooled[raw] = len(self._pool)
            self._pool += raw
        return self._pooled[raw]

    def _text(self, value: str | bytes) -> tuple[int, int]:
        raw = value.encode() if isinstance(value, str) else value
        return self._bytes(raw), len(raw)

    def _leaf(self, read: LeafAction, node: ColumnNode) -> None:
        wire = read.writer.kind
        size = read.writer.size if isinstance(read.writer, Fixed) else -1
        if wire in ("int", "long"):
            bits = 32 if wire == "int" else 64
            self._emit(Opcode.NUMBER, node.number, bits, _NUMBERS[conversion(read)])
        elif wire in _SIMPLE:
            self._emit(_SIMPLE[wire], node.number)
        elif wire == "null":
            self._value(node, None)
        elif isinstance(node, StructNode):
            self._emit(Opcode.DURATION, node.number, *(member.number for member in node.members))
        else:
            self._span(read, node.number, size)

    def _span(self, read: LeafAction, at: int, size: int) -> None:
        """Write the instruction of a leaf that is bytes."""
        kind, logical = conversion(read), read.reader.logical
        if kind in ("text", "bytes"):
            self._emit(Opcode.TEXT, at, size, int(kind == "text"))
        elif kind == "uuid":
            self._emit(Opcode.UUID, at, size)
        else:
            assert logical is not None
            limit = 10**logical.precision
            width = limit.bit_length() // 8 + 1
            low, high = (n.to_bytes(width, "big", signed=True) for n in (-limit, limit))
            limits = self._bytes(low + high)
            if kind == "decimal":
                self._emit(Opcode.DECIMAL, at, size, limits, width)
            else:
                self._emit(Opcode.WIDE_DECIMAL, at, size, limits, width, logical.scale)

    def _branch(self, read: ReaderUnionAction, node: ColumnNode) -> None:
        """Fill one column of a union that is several columns; the others are null."""
        names = union_names(read.union)
        if names is None or read.branch not in names:
            self.read(read.action, node)
            return
        assert isinstance(node, StructNode)
        self._emit(Opcode.PRESENT, node.number)
        for f, member in zip(node.type.fields, node.members, strict=True):
            if f.name == names[read.branch]:
                self.read(read.action, member)
            else:
                self._value(member, None)

    def _jumps(self, count: int, branch: Any) -> None:
        """Write a branch number, the branches, and the jump from each to the end."""
        table = self._table([0] * count)
        self._emit(Opcode.UNION, table, count)
        ends = []
        for i in range(count):
            self._tables[table + i] = len(self._code)
            branch(i)
            if i < count - 1:
                ends.append(self._emit(Opcode.JUMP, 0))
        for at in ends:
            self._patch(at, 1, len(self._code))

    def _blocks(self, read: ArrayAction | MapAction, node: ColumnNode) -> None:
        is_map = isinstance(node, MapNode)
        child = _first_item_node(node)
        least = read.min_size + is_map
        self._emit(Opcode.LIST, node.number, child)
        head = self._emit(Opcode.ITEM, node.number, child, least, 0, int(is_map))
        if isinstance(node, MapNode):
            assert isinstance(read, MapAction)
            self._emit(Opcode.TEXT, child, -1, 1)
            self.read(read.value, node.value)
        else:
            assert isinstance(read, ArrayAction)
            assert isinstance(node, ListNode)
            self.read(read.item, node.item)
        self._emit(Opcode.JUMP, head)
        self._patch(head, 4, len(self._code))

    def _skip(self, schema: Schema) -> None:
        if isinstance(schema, Record):
            self._wanted.append((self._emit(Opcode.CALL, 0), schema))
        elif isinstance(schema, Union):
            self._jumps(len(schema.branches), lambda i: self._skip(schema.branches[i]))
        elif isinstance(schema, (Array, MapType)):
            item = schema.items if isinstance(schema, Array) else schema.values
            self._emit(Opcode.SKIP_LIST)
            counts = isinstance(schema, MapType) or not takes_nothing(item)
            head = self._emit(Opcode.SKIP_ITEM, 0, int(counts))
            if isinstance(schema, MapType):
                self._emit(Opcode.SKIP_BYTES)
            self._skip(item)
            self._emit(Opcode.JUMP, head)
            self._patch(head, 1, len(self._code))
        elif isinstance(schema, Fixed):
            self._emit(Opcode.SKIP_WIDTH, schema.size)
        elif isinstance(schema, EnumType) or schema.kind in ("int", "long"):
            self._emit(Opcode.SKIP_NUMBER)
        elif schema.kind in ("bytes", "string"):
            self._emit(Opcode.SKIP_BYTES)
        else:
            self._emit(Opcode.SKIP_WIDTH, _WIDTHS[schema.kind])

    def _value(self, node: ColumnNode, value: Any) -> None:
        """Write a constant to every node below `node`."""
        if value is None:
            nulls = _row_nodes(node)
            self._emit(Opcode.NULLS, self._table(nulls), len(nulls))
        elif isinstance(node, StructNode):
            self._emit(Opcode.PRESENT, node.number)
            for f, member in zip(node.type.fields, node.members, strict=True):
                self._value(member, value[f.name])
        elif isinstance(node, (ListNode, MapNode)):
            self._emit(Opcode.RESERVE, _first_item_node(node), node.number, len(value))
            if isinstance(node, MapNode):
                for key, item in value.items():
                    self._value(node.key, key)
                    self._value(node.value, item)
            else:
                for item in value:
                    self._value(node.item, item)
            self._emit(Opcode.LISTED, node.number, _first_item_node(node))
        else:
            self._constant(node, value)

    def _constant(self, node: LeafNode, value: Any) -> None:
        if isinstance(value, (str, bytes)):
            self._emit(Opcode.CONSTANT, node.number, *self._text(value))
        elif isinstance(value, Decimal):
            assert isinstance(node.type, DecimalColumn)
            sign, digits, _ = value.as_tuple()
            unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
            low, high = _HALVES.unpack(unscaled.to_bytes(16, "little", signed=True))
            self._emit(Opcode.WORDS, node.number, low, high)
        elif isinstance(value, float):
            self._emit(Opcode.WORD, node.number, *_LONG.unpack(_DOUBLE.pack(value)))
        elif node.type == DOUBLE:
            self._emit(Opcode.WORD, node.number, *_LONG.unpack(_DOUBLE.pack(float(value))))
        else:
            self._emit(Opcode.WORD, node.number, int(value))


def _first_item_node(node: ColumnNode) -> int:
    """Return the number of the node that counts the items of an array or the entries of a map."""
    if isinstance(node, MapNode):
        return node.key.number
    assert isinstance(node, ListNode)
    return node.item.number


def _row_nodes(node: ColumnNode) -> list[int]:
    """Return the nodes that grow by one when `node` does, which excludes the nodes of items."""
    if not isinstance(node, StructNode):
        return [node.number]
    return [node.number, *(at for member in node.members for at in _row_nodes(member))]
