"""Resolution programs as generated Python: the writer's bytes straight to the reader's objects.

Rules:

- One function per (writer, reader) pair, and one per record that holds itself: all resolution is
  decided before, so the code has no schema in it.
- Every read is bounded by the datum and every block count by the bytes left (items that take no
  bytes: by MAX_EMPTY_ITEMS in the whole datum); a datum must end exactly where its bytes do.
- The generated text holds names and numbers only, never text from a schema: classes, constants
  and attribute names are passed beside it (attribute names are identifiers by the generator).
- A mutable default is made anew for every event.
- Objects are made without their `__init__`: every field is set here, and a generated class does
  nothing else there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from consumer_sdk._conversions import GIVEN, expression
from consumer_sdk._default_values import default_of
from headworks._decoding.generated_source import DATUM_ERRORS, SCOPE, DecoderText
from headworks._decoding.primitives import BadDatumError, skipper
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
    RecordPair,
    RecursionAction,
    SkipAction,
    WriterUnionAction,
    resolve,
)
from headworks.codec._event import RecordType
from headworks.schema import Schema

__all__ = ["DATUM_ERRORS", "Decode", "compiled"]

# From (bytes, position where the datum begins) to the event; raises one of DATUM_ERRORS.
Decode = Callable[[bytes, int], Any]

_SCOPE: Mapping[str, Any] = {**GIVEN, **SCOPE, "new": object.__new__}
_MAX_DEPTH = 90  # Python's parser takes a hundred levels of indentation
_MAX_LOOPS = 8  # and its compiler twenty nested loops: an array is two
_IMMUTABLE = (type(None), bool, int, float, str, bytes)


def compiled(writer: Schema, reader: Schema, types: Mapping[str, type]) -> Decode:
    """The function that decodes data of `writer` to objects of `reader`, a record.

    `types` are the generated classes of the reader's named types, by full name.
    """
    program = resolve(writer, reader)
    made = _Writer(types)
    name = made.function(program)
    scope = {**_SCOPE, **made.constants}
    exec(compile("\n\n".join(made.functions), "<headworks decoder>", "exec"), scope)
    read: Callable[[bytes, int, int, list[int] | None], tuple[Any, int]] = scope[name]
    counts_empty = made.counts_empty

    def decode(data: bytes, start: int) -> Any:
        end = len(data)
        event, at = read(data, start, end, [0] if counts_empty else None)
        if at != end:
            raise BadDatumError(f"{end - at} bytes follow the event")
        return event

    return decode


class _Writer(DecoderText):
    """Writes the functions of one decoder."""

    def __init__(self, types: Mapping[str, type]) -> None:
        super().__init__()
        self.functions: list[str] = []
        self.counts_empty = False
        self._types = types
        self._of_pairs: dict[RecordPair, str] = {}
        self._recursive: set[RecordPair] = set()

    def function(self, read: Action) -> str:
        """Write a function `(b, p, L, z) -> (value, position)` that carries out `read`; its name.

        `z` holds how many items that take no bytes the datum has had so far.
        """
        _find_recursive(read, self._recursive)
        return self._function(read, self._name("f"))

    def _function(self, read: Action, name: str) -> str:
        outer = self.lines, self._loops
        self.lines, self._loops = [f"def {name}(b, p, L, z):"], 0
        if isinstance(read, RecordAction):
            self._of_pairs.setdefault(read.pair, name)
            value = self._record(read, 1)
        else:
            value = self._read(read, 1)
        self._line(1, f"return {value}, p")
        self.functions.append("\n".join(self.lines))
        self.lines, self._loops = outer
        return name

    def _read(self, read: Action, depth: int) -> str:
        """Write the lines that carry out `read`; the expression of its value."""
        if depth > _MAX_DEPTH or self._loops > _MAX_LOOPS:
            name = self._function(read, self._name("f"))
            return self._call(name, depth)
        if isinstance(read, LeafAction):
            return self._leaf(read, depth)
        if isinstance(read, EnumAction):
            return self._enum(read, depth)
        if isinstance(read, RecordAction):
            if read.pair in self._recursive:
                return self._call(self._function_of(read), depth)
            return self._record(read, depth)
        if isinstance(read, RecursionAction):
            return self._call(self._of_pairs[read.pair], depth)
        if isinstance(read, WriterUnionAction):
            return self._union(read, depth)
        if isinstance(read, ReaderUnionAction):
            return self._read(read.read, depth)
        if isinstance(read, DefaultAction):
            return self._default(read)
        if isinstance(read, (ArrayAction, MapAction)):
            return self._blocks(read, depth)
        if isinstance(read, SkipAction):
            self._line(depth, f"p = {self._constant(skipper(read.schema))}(b, p, L)")
            return "None"
        assert isinstance(read, ErrorAction)
        self._line(depth, f"raise BadDatum({self._constant(read.reason)})")
        return "None"

    def _function_of(self, read: RecordAction) -> str:
        if read.pair not in self._of_pairs:
            self._of_pairs[read.pair] = self._name("f")  # before its fields: they may hold it
            self._function(read, self._of_pairs[read.pair])
        return self._of_pairs[read.pair]

    def _record(self, read: RecordAction, depth: int) -> str:
        cls: Any = self._types[read.reader.name]
        told: RecordType[Any] = cls.__headworks__
        made = self._kept(f"new({self._constant(cls)})", depth)
        for field, step in read.steps:
            value = self._read(step, depth)
            if field is not None:
                self._line(depth, f"{made}.{told.fields[field.name]} = {value}")
        return made

    def _kept(self, value: str, depth: int) -> str:
        name = self._name("x")
        self._line(depth, f"{name} = {value}")
        return name

    def _call(self, function: str, depth: int) -> str:
        name = self._name("x")
        self._line(depth, f"{name}, p = {function}(b, p, L, z)")
        return name

    def _leaf(self, read: LeafAction, depth: int) -> str:
        wire = read.writer.kind
        if wire == "null":
            return "None"
        self._raw(read, depth)
        return "v == 1" if wire == "boolean" else expression(read.writer, read.reader)

    def _enum(self, read: EnumAction, depth: int) -> str:
        cls: Any = self._types[read.reader.name]
        members = tuple(None if s is None else cls(s) for s in read.symbols)
        self._symbol(read, members, "the reader", depth)
        return "v"

    def _union(self, read: WriterUnionAction, depth: int) -> str:
        found = self._name("x")
        self._line(depth, "v = b[p]; p += 1")
        self._line(depth, "if v > 127: v, p = read_int(b, p, v); v <<= 1")
        for i, branch in enumerate(read.branches):
            self._line(depth, f"{'if' if i == 0 else 'elif'} v == {i << 1}:")
            value = self._read(branch, depth + 1)
            self._line(depth + 1, f"{found} = {value}")
        if read.branches:
            number = "{v >> 1 ^ -(v & 1)}"
            self._line(depth, f"else: raise BadDatum(f'{number} is no branch of the union')")
        else:
            self._line(depth, "raise BadDatum('a union of nothing has no values')")
        return found

    def _blocks(self, read: ArrayAction | MapAction, depth: int) -> str:
        found, count = self._name("x"), self._name("n")
        least = read.min_size + (1 if isinstance(read, MapAction) else 0)
        self._line(depth, f"{found} = {'{}' if isinstance(read, MapAction) else '[]'}")
        self._line(depth, "while True:")
        self._integer("long", depth + 1)
        self._line(depth + 1, "if v == 0: break")
        self._line(depth + 1, f"{count} = v")
        self._line(depth + 1, "if v < 0:")
        self._line(depth + 2, f"{count} = -v")
        self._integer("long", depth + 2)
        if least:
            self._line(depth + 1, f"if {count} * {least} > L - p: raise IndexError")
        else:
            many = "raise BadDatum('an array has too many items that take no bytes')"
            self.counts_empty = True
            self._line(depth + 1, f"z[0] += {count}")
            self._line(depth + 1, f"if z[0] > MAX_EMPTY: {many}")
        self._line(depth + 1, f"for _ in range({count}):")
        self._loops += 1
        if isinstance(read, MapAction):
            key = self._name("x")
            self._bytes(None, depth + 2)
            self._line(depth + 2, f"{key} = v.decode()")
            value = self._read(read.value, depth + 2)
            self._line(depth + 2, f"{found}[{key}] = {value}")
        else:
            value = self._read(read.item, depth + 2)
            self._line(depth + 2, f"{found}.append({value})")
        self._loops -= 1
        return found

    def _default(self, read: DefaultAction) -> str:
        value = default_of(read.field, self._types)
        if value is None or isinstance(value, bool):
            return repr(value)
        name = self._constant(value)
        return name if _is_immutable(value) else f"{self._constant(copy.deepcopy)}({name})"


def _is_immutable(value: Any) -> bool:
    if isinstance(value, (list, dict)):
        return False
    return isinstance(value, _IMMUTABLE) or not hasattr(value, "__headworks__")


def _find_recursive(read: Action, found: set[RecordPair]) -> None:
    """Collect the records that are met again inside themselves."""
    if isinstance(read, RecursionAction):
        found.add(read.pair)
    elif isinstance(read, RecordAction):
        for _, step in read.steps:
            _find_recursive(step, found)
    elif isinstance(read, WriterUnionAction):
        for branch in read.branches:
            _find_recursive(branch, found)
    elif isinstance(read, ReaderUnionAction):
        _find_recursive(read.read, found)
    elif isinstance(read, ArrayAction):
        _find_recursive(read.item, found)
    elif isinstance(read, MapAction):
        _find_recursive(read.value, found)
