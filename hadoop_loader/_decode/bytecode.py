"""A resolution program as numbers: what the kernel walks.

Rules:

- The same reads, slots and conversions as in the generated Python (`codegen`); a property test
  compares the rows.
- A writer's record that is skipped is a subroutine, so that recursion and repetition cost nothing.
- Text of a schema (symbols, defaults) lies in one pool of bytes that instructions point into.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal as Number
from typing import Any

import numpy as np
import numpy.typing as npt

from hadoop_loader._decode.column_builders import LeafSlot, ListSlot, MapSlot, Slot, StructSlot
from hadoop_loader._decode.conversions import conversion
from hadoop_loader._decode.decode_vm import ARGUMENTS, Op
from hadoop_loader._decode.generated_decoder import too_large
from hadoop_loader._tables.columns import DOUBLE, EMPTY_FIELD, Decimal, Struct, StructField
from hadoop_loader._tables.defaults import default_of, union_names
from headworks._decoding.primitives import takes_nothing
from headworks._decoding.resolution import (
    Branch,
    Constant,
    EnumRead,
    Fail,
    Leaf,
    ListRead,
    MapRead,
    Read,
    RecordRead,
    Skip,
    UnionRead,
)
from headworks.schema import Array, EnumType, Fixed, MapType, Record, Schema, Union

__all__ = ["Program", "assemble"]

Numbers = npt.NDArray[np.int64]

_MAX_CODE = 400_000
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = {"": 0, "double": 1, "float32": 2, "millis_to_micros": 3, "nanos_to_micros": 4}
_SIMPLE = {"boolean": Op.BOOLEAN, "float": Op.FLOAT, "double": Op.DOUBLE}
_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")
_HALVES = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions (a row each), the numbers and the bytes that they point into."""

    code: Numbers
    tables: Numbers
    pool: npt.NDArray[np.uint8]


def assemble(read: Read, columns: tuple[StructField, ...], slots: tuple[Slot, ...]) -> Program:
    """The program of `read`, for the slots of `columns`. SchemaError for what is too large."""
    writer = _Assembler()
    top = StructSlot(-1, Struct(columns), slots)
    if isinstance(read, RecordRead):
        writer.record(read, top, present=False)
    elif isinstance(read, Fail) or not columns:
        writer.read(read, top)
    else:
        writer.read(read, slots[0])
    return writer.finish()


class _Assembler:
    """Writes the instructions of one program."""

    def __init__(self) -> None:
        self._code: list[tuple[int, ...]] = []
        self._tables: list[int] = []
        self._pool = bytearray()
        self._pooled: dict[bytes, int] = {}
        self._routines: dict[int, int] = {}
        self._wanted: list[tuple[int, Record]] = []

    def finish(self) -> Program:
        """End the program and append the subroutines that it calls."""
        self._emit(Op.END)
        while self._wanted:
            at, schema = self._wanted.pop()
            if id(schema) not in self._routines:
                self._routines[id(schema)] = len(self._code)
                for f in schema.fields:
                    self._skip(f.type)
                self._emit(Op.RETURN)
            self._patch(at, 1, self._routines[id(schema)])
        code = np.zeros((len(self._code), ARGUMENTS), np.int64)
        for i, row in enumerate(self._code):
            code[i, : len(row)] = row
        return Program(
            code,
            np.array(self._tables or [0], np.int64),
            np.frombuffer(bytes(self._pool) or b"\0", np.uint8),
        )

    def read(self, read: Read, slot: Slot) -> None:
        """Write the instructions that carry out `read` and append to `slot`."""
        if isinstance(read, Leaf):
            self._leaf(read, slot)
        elif isinstance(read, EnumRead):
            table = [self._text(s) if s is not None else (-1, 0) for s in read.symbols]
            at = self._table([number for entry in table for number in entry])
            self._emit(Op.SYMBOL, slot.at, at, len(table))
        elif isinstance(read, RecordRead):
            assert isinstance(slot, StructSlot)
            self.record(read, slot, present=True)
        elif isinstance(read, UnionRead):
            self._jumps(len(read.branches), lambda i: self.read(read.branches[i], slot))
        elif isinstance(read, Branch):
            self._branch(read, slot)
        elif isinstance(read, Constant):
            self._value(slot, default_of(read.field))
        elif isinstance(read, Fail):
            self._emit(Op.FAIL)
        elif isinstance(read, (ListRead, MapRead)):
            self._blocks(read, slot)
        else:
            assert isinstance(read, Skip), "recursive schemas have no columns"
            self._skip(read.schema)

    def record(self, read: RecordRead, slot: StructSlot, *, present: bool) -> None:
        """Write the instructions of a record; `present`: the struct says itself that it is."""
        if present:
            self._emit(Op.PRESENT, slot.at)
        for field, step in read.steps:
            if field is None:
                assert isinstance(step, Skip)
                self._skip(step.schema)
            else:
                self.read(step, slot.member(field.name))
        if not read.reader.fields and present:
            self._value(slot.member(EMPTY_FIELD), True)

    def _emit(self, op: Op, *arguments: int) -> int:
        if len(self._code) >= _MAX_CODE:
            raise too_large()
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

    def _leaf(self, read: Leaf, slot: Slot) -> None:
        wire = read.writer.kind
        size = read.writer.size if isinstance(read.writer, Fixed) else -1
        if wire in ("int", "long"):
            bits = 32 if wire == "int" else 64
            self._emit(Op.NUMBER, slot.at, bits, _NUMBERS[conversion(read)])
        elif wire in _SIMPLE:
            self._emit(_SIMPLE[wire], slot.at)
        elif wire == "null":
            self._value(slot, None)
        elif isinstance(slot, StructSlot):
            self._emit(Op.DURATION, slot.at, *(member.at for member in slot.members))
        else:
            self._span(read, slot.at, size)

    def _span(self, read: Leaf, at: int, size: int) -> None:
        """A leaf that is a number of bytes."""
        kind, logical = conversion(read), read.reader.logical
        if kind in ("text", "bytes"):
            self._emit(Op.TEXT, at, size, int(kind == "text"))
        elif kind == "uuid":
            self._emit(Op.UUID, at, size)
        else:
            assert logical is not None
            limit = 10**logical.precision
            width = limit.bit_length() // 8 + 1
            low, high = (n.to_bytes(width, "big", signed=True) for n in (-limit, limit))
            limits = self._bytes(low + high)
            if kind == "decimal":
                self._emit(Op.DECIMAL, at, size, limits, width)
            else:
                self._emit(Op.WIDE_DECIMAL, at, size, limits, width, logical.scale)

    def _branch(self, read: Branch, slot: Slot) -> None:
        """A branch of a union that is several columns fills one of them; the others are null."""
        names = union_names(read.union)
        if names is None or read.at not in names:
            self.read(read.read, slot)
            return
        assert isinstance(slot, StructSlot)
        self._emit(Op.PRESENT, slot.at)
        for f, member in zip(slot.type.fields, slot.members, strict=True):
            if f.name == names[read.at]:
                self.read(read.read, member)
            else:
                self._value(member, None)

    def _jumps(self, count: int, branch: Any) -> None:
        """A branch number, the branches, and the way from each to what follows."""
        table = self._table([0] * count)
        self._emit(Op.UNION, table, count)
        ends = []
        for i in range(count):
            self._tables[table + i] = len(self._code)
            branch(i)
            if i < count - 1:
                ends.append(self._emit(Op.JUMP, 0))
        for at in ends:
            self._patch(at, 1, len(self._code))

    def _blocks(self, read: ListRead | MapRead, slot: Slot) -> None:
        is_map = isinstance(slot, MapSlot)
        child = _first(slot)
        least = read.min_size + is_map
        self._emit(Op.LIST, slot.at, child)
        head = self._emit(Op.ITEM, slot.at, child, least, 0, int(is_map))
        if isinstance(slot, MapSlot):
            assert isinstance(read, MapRead)
            self._emit(Op.TEXT, child, -1, 1)
            self.read(read.value, slot.value)
        else:
            assert isinstance(read, ListRead)
            assert isinstance(slot, ListSlot)
            self.read(read.item, slot.item)
        self._emit(Op.JUMP, head)
        self._patch(head, 4, len(self._code))

    def _skip(self, schema: Schema) -> None:
        if isinstance(schema, Record):
            self._wanted.append((self._emit(Op.CALL, 0), schema))
        elif isinstance(schema, Union):
            self._jumps(len(schema.branches), lambda i: self._skip(schema.branches[i]))
        elif isinstance(schema, (Array, MapType)):
            item = schema.items if isinstance(schema, Array) else schema.values
            self._emit(Op.SKIP_LIST)
            counts = isinstance(schema, MapType) or not takes_nothing(item)
            head = self._emit(Op.SKIP_ITEM, 0, int(counts))
            if isinstance(schema, MapType):
                self._emit(Op.SKIP_BYTES)
            self._skip(item)
            self._emit(Op.JUMP, head)
            self._patch(head, 1, len(self._code))
        elif isinstance(schema, Fixed):
            self._emit(Op.SKIP_WIDTH, schema.size)
        elif isinstance(schema, EnumType) or schema.kind in ("int", "long"):
            self._emit(Op.SKIP_NUMBER)
        elif schema.kind in ("bytes", "string"):
            self._emit(Op.SKIP_BYTES)
        else:
            self._emit(Op.SKIP_WIDTH, _WIDTHS[schema.kind])

    def _value(self, slot: Slot, value: Any) -> None:
        """Append a constant to every slot below `slot`."""
        if value is None:
            nulls = _rows(slot)
            self._emit(Op.NULLS, self._table(nulls), len(nulls))
        elif isinstance(slot, StructSlot):
            self._emit(Op.PRESENT, slot.at)
            for f, member in zip(slot.type.fields, slot.members, strict=True):
                self._value(member, value[f.name])
        elif isinstance(slot, (ListSlot, MapSlot)):
            self._emit(Op.RESERVE, _first(slot), slot.at, len(value))
            if isinstance(slot, MapSlot):
                for key, item in value.items():
                    self._value(slot.key, key)
                    self._value(slot.value, item)
            else:
                for item in value:
                    self._value(slot.item, item)
            self._emit(Op.LISTED, slot.at, _first(slot))
        else:
            self._constant(slot, value)

    def _constant(self, slot: LeafSlot, value: Any) -> None:
        if isinstance(value, (str, bytes)):
            self._emit(Op.CONSTANT, slot.at, *self._text(value))
        elif isinstance(value, Number):
            assert isinstance(slot.type, Decimal)
            sign, digits, _ = value.as_tuple()
            unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
            low, high = _HALVES.unpack(unscaled.to_bytes(16, "little", signed=True))
            self._emit(Op.WORDS, slot.at, low, high)
        elif isinstance(value, float):
            self._emit(Op.WORD, slot.at, *_LONG.unpack(_DOUBLE.pack(value)))
        elif slot.type == DOUBLE:
            self._emit(Op.WORD, slot.at, *_LONG.unpack(_DOUBLE.pack(float(value))))
        else:
            self._emit(Op.WORD, slot.at, int(value))


def _first(slot: Slot) -> int:
    """The slot that counts the items of an array, or the entries of a map."""
    if isinstance(slot, MapSlot):
        return slot.key.at
    assert isinstance(slot, ListSlot)
    return slot.item.at


def _rows(slot: Slot) -> list[int]:
    """The slots that grow by one when `slot` does: not those of items."""
    if not isinstance(slot, StructSlot):
        return [slot.at]
    return [slot.at, *(at for member in slot.members for at in _rows(member))]
