"""Resolved actions as the Python source of a decoder, for columns and for objects alike.

A `DecoderSource` writes how numbers, bytes, unions, and blocks are read. A subclass says what
becomes of the values: the loader appends them to columns, the consumer builds objects.

Rules:

- The source holds names and numbers only, never text from a schema: constants are passed beside it.
- In it, `b` is the bytes, `p` the position, `L` the end, and `v` the value read last.
- Every read is bounded by the datum: a read past its end raises IndexError.
- Every block count is bounded by the bytes left. Items that take no bytes are bounded by
  MAX_EMPTY_ITEMS in the whole datum.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from headworks._decoding.primitives import (
    MAX_EMPTY_ITEMS,
    BadDatumError,
    read_int,
    read_long,
    skipper,
)
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
    unknown_symbol,
)
from headworks.schema import Field, Fixed

DATUM_ERRORS: Final = (ValueError, IndexError, struct.error, RecursionError, OverflowError)
Target = TypeVar("Target")


def _after_length(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Return where bytes end and begin, whose length has `first` as its first byte."""
    if first < 128:
        raise BadDatumError("a length is negative")
    second = data[at]
    if not second & 128 and not first & 1:  # 64 to 8,191 bytes
        at += 1
        return at + (first - 128 + (second << 7) >> 1), at
    size, at = read_long(data, at, first)
    if size < 0:
        raise BadDatumError("a length is negative")
    return at + size, at


SCOPE: Final[Mapping[str, Any]] = {
    "BadDatum": BadDatumError,
    "DATUM_ERRORS": DATUM_ERRORS,
    "MAX_EMPTY": MAX_EMPTY_ITEMS,
    "after_length": _after_length,
    "read_int": read_int,
    "read_long": read_long,
    "unknown_symbol": unknown_symbol,
    "ZIGZAG": tuple((n >> 1) ^ -(n & 1) for n in range(128)),
    "float_at": struct.Struct("<f").unpack_from,
    "double_at": struct.Struct("<d").unpack_from,
}


class DecoderSource(ABC, Generic[Target]):
    """The source of one decoder while it is written; a target is the place of a value."""

    # The variable that counts items without bytes, and the reader's name in error messages.
    empty_items: ClassVar[str]
    reader_name: ClassVar[str]
    # The statement for the number of items in a block: (variable of the items, number).
    block_line: ClassVar[str] = ""

    def __init__(self) -> None:
        self.lines: list[str] = []  # of the function that is being written
        self.constants: dict[str, Any] = {}  # by their name in the source
        self._names = 0  # given out so far
        self._loops = 0  # around the line that is being written

    @abstractmethod
    def store(self, target: Target, expression: str, depth: int) -> None:
        """Write the line that puts the value of `expression` in its place."""

    @abstractmethod
    def convert(self, action: LeafAction, target: Target, depth: int) -> None:
        """Store the leaf in `v` as the reader's value."""

    @abstractmethod
    def symbols(self, action: EnumAction) -> Sequence[Any]:
        """Return the reader's value of each of the writer's symbols; None for an unknown one."""

    @abstractmethod
    def default(self, field: Field, target: Target, depth: int) -> None:
        """Store the default of a field."""

    @abstractmethod
    def record(self, action: RecordAction, target: Target, depth: int) -> None:
        """Write the lines of a record."""

    @abstractmethod
    def begin_items(self, action: ArrayAction | MapAction, depth: int) -> str:
        """Write the lines before the blocks; return the variable to store after them."""

    @abstractmethod
    def item(
        self, action: ArrayAction | MapAction, target: Target, items: str, depth: int
    ) -> Target:
        """Return the place of an item; in a map, store the key first, whose bytes are in `v`."""

    def null(self, target: Target, depth: int) -> None:
        """Store a null."""
        self.store(target, "None", depth)

    def reader_union(self, action: ReaderUnionAction, target: Target, depth: int) -> None:
        """Write the lines of a value that becomes one branch of a union."""
        self.read(action.action, target, depth)

    def read(self, action: Action, target: Target, depth: int) -> None:
        """Write the lines that carry out `action`, `depth` levels deep."""
        if isinstance(action, LeafAction):
            self._leaf(action, target, depth)
        elif isinstance(action, EnumAction):
            self._enum(action, target, depth)
        elif isinstance(action, RecordAction):
            self.record(action, target, depth)
        elif isinstance(action, WriterUnionAction):
            self._writer_union(action, target, depth)
        elif isinstance(action, ReaderUnionAction):
            self.reader_union(action, target, depth)
        elif isinstance(action, DefaultAction):
            self.default(action.field, target, depth)
        elif isinstance(action, (ArrayAction, MapAction)):
            self._blocks(action, target, depth)
        elif isinstance(action, SkipAction):
            self.skip(action, depth)
        else:
            assert isinstance(action, ErrorAction), "a recursive record has no columns"
            self._line(depth, f"raise BadDatum({self._constant(action.reason)})")

    def skip(self, action: SkipAction, depth: int) -> None:
        """Write the line that passes over a value."""
        self._line(depth, f"p = {self._constant(skipper(action.schema))}(b, p, L)")

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _constant(self, value: Any) -> str:
        name = self._name("K")
        self.constants[name] = value
        return name

    def _integer(self, wire: str, depth: int) -> None:
        """Write the lines that read a varint."""
        self._line(depth, "v = b[p]; p += 1")
        self._line(depth, "if v < 128: v = ZIGZAG[v]")
        self._line(depth, f"else: v, p = read_{wire}(b, p, v)")

    def _bytes(self, size: int | None, depth: int) -> None:
        """Write the lines that read bytes, of a fixed size or with their length before them."""
        if size is None:
            self._line(depth, "v = b[p]; p += 1")
            self._line(depth, "if v & 129: e, p = after_length(b, p, v)  # odd, or of more bytes")
            self._line(depth, "else: e = p + (v >> 1)")
        else:
            self._line(depth, f"e = p + {size}")
        self._line(depth, "if e > L: raise IndexError")
        self._line(depth, "v = b[p:e]; p = e")

    def _leaf(self, action: LeafAction, target: Target, depth: int) -> None:
        wire = action.writer.kind
        if wire == "null":
            self.null(target, depth)
            return
        if wire == "boolean":
            self._line(depth, "v = b[p]; p += 1")
            self._line(depth, "if v > 1: raise BadDatum(f'{v} is not a boolean')")
            self.store(target, "v == 1", depth)
            return
        if wire in ("int", "long"):
            self._integer(wire, depth)
        elif wire in ("float", "double"):
            self._line(depth, f"v, = {wire}_at(b, p); p += {4 if wire == 'float' else 8}")
        else:
            self._bytes(action.writer.size if isinstance(action.writer, Fixed) else None, depth)
        self.convert(action, target, depth)

    def _enum(self, action: EnumAction, target: Target, depth: int) -> None:
        symbols = self.symbols(action)
        self._integer("int", depth)
        bad = "raise BadDatum(f'{v} is no symbol of the enum')"
        self._line(depth, f"if not 0 <= v < {len(symbols)}: {bad}")
        if None in symbols:
            self._line(depth, f"w = {self._constant(action.written)}[v]")
        self._line(depth, f"v = {self._constant(symbols)}[v]")
        if None in symbols:
            unknown = f"unknown_symbol({self.reader_name!r}, w)"
            self._line(depth, f"if v is None: raise BadDatum({unknown})")
        self.store(target, "v", depth)

    def _writer_union(self, action: WriterUnionAction, target: Target, depth: int) -> None:
        self._line(depth, "v = b[p]; p += 1")
        self._line(depth, "if v > 127: v, p = read_int(b, p, v); v <<= 1")
        for i, branch in enumerate(action.branches):
            self._line(depth, f"{'if' if i == 0 else 'elif'} v == {i << 1}:")
            self.read(branch, target, depth + 1)
        if action.branches:
            number = "{v >> 1 ^ -(v & 1)}"
            self._line(depth, f"else: raise BadDatum(f'{number} is no branch of the union')")
        else:
            self._line(depth, "raise BadDatum('a union of nothing has no values')")

    def _blocks(self, action: ArrayAction | MapAction, target: Target, depth: int) -> None:
        self._loops += 1
        items, count = self.begin_items(action, depth), self._name("n")
        self._line(depth, "while True:")
        self._integer("long", depth + 1)
        self._line(depth + 1, "if v == 0: break")
        self._line(depth + 1, f"{count} = v")
        self._line(depth + 1, "if v < 0:")
        self._line(depth + 2, f"{count} = -v")
        self._integer("long", depth + 2)
        if least := action.min_size + isinstance(action, MapAction):
            self._line(depth + 1, f"if {count} * {least} > L - p: raise IndexError")
        else:
            many = "raise BadDatum('an array has too many items that take no bytes')"
            self._line(depth + 1, f"{self.empty_items} += {count}")
            self._line(depth + 1, f"if {self.empty_items} > MAX_EMPTY: {many}")
        if self.block_line:
            self._line(depth + 1, self.block_line.format(items, count))
        self._line(depth + 1, f"for _ in range({count}):")
        if isinstance(action, MapAction):
            self._bytes(None, depth + 2)
        place = self.item(action, target, items, depth + 2)
        inner = action.value if isinstance(action, MapAction) else action.item
        self.read(inner, place, depth + 2)
        self._loops -= 1
        self.store(target, items, depth)
