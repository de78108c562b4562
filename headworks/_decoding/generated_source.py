"""The text of a decoder that is being written: the lines that every back end writes alike.

Rules:

- The text holds names and numbers only, never text from a schema: constants are passed beside it.
- In it `b` are the bytes, `p` the position, `L` the end; what is read is in `v`.
- Every read is bounded by the datum: past its end is an IndexError.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headworks._decoding.primitives import MAX_EMPTY_ITEMS, BadDatumError, read_int, read_long
from headworks._decoding.resolution import EnumAction, LeafAction
from headworks.schema import Fixed

__all__ = ["DATUM_ERRORS", "SCOPE", "DecoderText"]

DATUM_ERRORS: Final = (ValueError, IndexError, struct.error, RecursionError, OverflowError)


def _after_length(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Where bytes end, and begin, whose length has `first` as its first byte."""
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
    "ZIGZAG": tuple((n >> 1) ^ -(n & 1) for n in range(128)),
    "float_at": struct.Struct("<f").unpack_from,
    "double_at": struct.Struct("<d").unpack_from,
}


class DecoderText:
    """Lines and constants, and what reads a number, bytes, or a leaf into `v`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._names = self._loops = 0

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
        """Read a varint."""
        self._line(depth, "v = b[p]; p += 1")
        self._line(depth, "if v < 128: v = ZIGZAG[v]")
        self._line(depth, f"else: v, p = read_{wire}(b, p, v)")

    def _bytes(self, size: int | None, depth: int) -> None:
        """Read bytes, of a fixed size or with their length before them."""
        if size is None:
            self._line(depth, "v = b[p]; p += 1")
            self._line(depth, "if v & 129: e, p = after_length(b, p, v)  # odd, or of more bytes")
            self._line(depth, "else: e = p + (v >> 1)")
        else:
            self._line(depth, f"e = p + {size}")
        self._line(depth, "if e > L: raise IndexError")
        self._line(depth, "v = b[p:e]; p = e")

    def _raw(self, read: LeafAction, depth: int) -> None:
        """Read a leaf as the writer wrote it."""
        wire = read.writer.kind
        if wire in ("int", "long"):
            self._integer(wire, depth)
        elif wire == "boolean":
            self._line(depth, "v = b[p]; p += 1")
            self._line(depth, "if v > 1: raise BadDatum(f'{v} is not a boolean')")
        elif wire in ("float", "double"):
            self._line(depth, f"v, = {wire}_at(b, p); p += {4 if wire == 'float' else 8}")
        elif wire != "null":
            self._bytes(read.writer.size if isinstance(read.writer, Fixed) else None, depth)

    def _symbol(self, read: EnumAction, members: Sequence[Any], whose: str, depth: int) -> None:
        """Read a symbol's number, and take its member: `whose` schema knows no others."""
        self._integer("int", depth)
        bad = "raise BadDatum(f'{v} is no symbol of the enum')"
        self._line(depth, f"if not 0 <= v < {len(members)}: {bad}")
        if None in members:
            written = self._constant(read.written)
            self._line(depth, f"w = {written}[v]")
        self._line(depth, f"v = {self._constant(members)}[v]")
        if None in members:
            unknown = f"raise BadDatum(f'{whose} has no symbol {{w!r}}, and no default')"
            self._line(depth, f"if v is None: {unknown}")
