"""The back end that needs nothing: a resolution program as generated Python.

Rules:

- One function per (writer, reader) pair: it loops over datums and appends to the flat lists of
  `slots.Columns`; all resolution is decided before, so the function has no schema in it.
- Every read is bounded by the datum, every block count by the bytes left (items that take no
  bytes: by MAX_EMPTY_ITEMS), and a datum must end exactly where its bytes do. What breaks a rule
  costs that datum: its appends are cut and (index, reason) is reported.
- The generated text holds names and numbers only, never text from a schema: constants are passed
  beside it.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from hadoop_loader._decode.column_builders import (
    ColumnBuilders,
    ColumnNode,
    ListNode,
    MapNode,
    StructNode,
)
from hadoop_loader._decode.conversions import conversion
from hadoop_loader._tables.columns import EMPTY_FIELD, StructColumn
from hadoop_loader._tables.defaults import (
    as_float32,
    column_default,
    decimal_text,
    duration,
    micros_of_millis,
    to_decimal,
    union_names,
)
from headworks._decoding.generated_source import SCOPE, DecoderText
from headworks._decoding.primitives import skipper
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
from headworks.errors import SchemaError

__all__ = ["DatumErrors", "Decode", "generate", "schema_too_large", "source"]

_MAX_DEPTH = 80
_MAX_LOOPS = 8
_MAX_LINES = 60_000

DatumErrors = list[tuple[int, str]]
Decode = Callable[[Sequence[bytes], int, DatumErrors], int]

_GIVEN: dict[str, Any] = {
    **SCOPE,
    "float32": as_float32,
    "millis": micros_of_millis,
    "decimal": to_decimal,
    "decimal_text": decimal_text,
    "duration": duration,
    "uuid_of": lambda raw: str(uuid.UUID(bytes=raw)),
}
_INTEGERS = {
    "": "{}",
    "double": "float({})",
    "float32": "float32({})",
    "millis_to_micros": "millis({})",
    "nanos_to_micros": "{} // 1000",
}


def generate(read: Action, columns: ColumnBuilders) -> Decode:
    """The function `decode(values, start, errors) -> rows`: `start` is where a datum begins.

    It appends the good datums to `columns`, and to `errors` the index and reason of the others.
    """
    text, constants = source(read, columns)
    scope = {**_GIVEN, **constants}
    exec(compile(text, "<headworks decoder>", "exec"), scope)
    make: Callable[[ColumnBuilders], Decode] = scope["make"]
    return make(columns)


def source(read: Action, columns: ColumnBuilders) -> tuple[str, dict[str, Any]]:
    """The text of the decoder, and the constants that it refers to."""
    writer = _Writer()
    top = StructNode(-1, StructColumn(columns.columns), columns.nodes)
    if isinstance(read, RecordAction):
        writer.record(read, top, 4, present=False)
    elif isinstance(read, ErrorAction) or not columns.columns:
        writer.read(read, top, 4)
    else:
        writer.read(read, columns.nodes[0], 4)
    lists = "".join(f"  a{i} = columns.lists[{i}].append\n" for i in sorted(writer.used))
    body = "\n".join(writer.lines)
    text = (
        "def make(columns):\n"
        f"{lists}"
        "  def decode(values, start, errors):\n"
        "   row = 0\n"
        "   for index, b in enumerate(values):\n"
        "    p = start\n"
        "    L = len(b)\n"
        "    z = 0\n"
        "    try:\n"
        f"{body}\n"
        "     if p != L:\n"
        "      raise BadDatum(f'{L - p} bytes are left after the datum')\n"
        "    except DATUM_ERRORS as error:\n"
        "     columns.cut(row)\n"
        "     errors.append((index, reason(error)))\n"
        "     continue\n"
        "    row += 1\n"
        "   return row\n"
        "  return decode\n"
    )
    return text, {**writer.constants, "reason": _reason}


def schema_too_large() -> SchemaError:
    """What is said of a schema whose program would be too large."""
    return SchemaError(
        "the schema is nested too deeply, or too large, to be loaded",
        rule="decoder-size",
        fix="flatten it, or keep the deep part as a bytes field",
    )


def _reason(error: Exception) -> str:
    if isinstance(error, (IndexError, struct.error)):
        return "the datum ends too early"
    if isinstance(error, RecursionError):
        return "the datum is nested too deeply"
    return str(error)


class _Writer(DecoderText):
    """Writes the lines of one decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int] = set()

    def read(self, read: Action, node: ColumnNode, depth: int) -> None:
        """Write the lines that carry out `read` and append to `slot`."""
        if isinstance(read, LeafAction):
            self._leaf(read, node, depth)
        elif isinstance(read, EnumAction):
            self._enum(read, node, depth)
        elif isinstance(read, RecordAction):
            assert isinstance(node, StructNode)
            self.record(read, node, depth, present=True)
        elif isinstance(read, WriterUnionAction):
            self._union(read, node, depth)
        elif isinstance(read, ReaderUnionAction):
            self._branch(read, node, depth)
        elif isinstance(read, DefaultAction):
            self._value(node, column_default(read.field), depth)
        elif isinstance(read, ErrorAction):
            self._line(depth, f"raise BadDatum({self._constant(read.reason)})")
        elif isinstance(read, (ArrayAction, MapAction)):
            self._blocks(read, node, depth)
        else:
            assert isinstance(read, SkipAction), "recursive schemas have no columns"
            self._skip(read, depth)

    def _branch(self, read: ReaderUnionAction, node: ColumnNode, depth: int) -> None:
        """A branch of a union that is several columns fills one of them; the others are null."""
        names = union_names(read.union)
        if names is None or read.branch not in names:
            self.read(read.read, node, depth)
            return
        assert isinstance(node, StructNode)
        self._append(node.number, "True", depth)
        for f, member in zip(node.type.fields, node.members, strict=True):
            if f.name == names[read.branch]:
                self.read(read.read, member, depth)
            else:
                self._value(member, None, depth)

    def record(self, read: RecordAction, node: StructNode, depth: int, *, present: bool) -> None:
        """Write the lines of a record; `present`: the struct says itself that it is there."""
        if present:
            self._append(node.number, "True", depth)
        for field, step in read.steps:
            if field is None:
                assert isinstance(step, SkipAction)
                self._skip(step, depth)
            else:
                self.read(step, node.member(field.name), depth)
        if not read.reader.fields and present:
            self._value(node.member(EMPTY_FIELD), True, depth)
        if not self.lines:
            self._line(depth, "pass")

    def _line(self, depth: int, text: str) -> None:
        if depth > _MAX_DEPTH or len(self.lines) > _MAX_LINES:
            raise schema_too_large()
        super()._line(depth + 1, text)

    def _append(self, at: int, expression: str, depth: int) -> None:
        self.used.add(at)
        self._line(depth, f"a{at}({expression})")

    def _leaf(self, read: LeafAction, node: ColumnNode, depth: int) -> None:
        wire = read.writer.kind
        self._raw(read, depth)
        if wire in ("int", "long"):
            self._append(node.number, _INTEGERS[conversion(read)].format("v"), depth)
        elif wire == "boolean":
            self._append(node.number, "v == 1", depth)
        elif wire in ("float", "double"):
            self._append(node.number, "v", depth)
        elif wire == "null":
            self._value(node, None, depth)
        else:
            self._converted(read, node, depth)

    def _converted(self, read: LeafAction, node: ColumnNode, depth: int) -> None:
        if isinstance(node, StructNode):
            self._line(depth, "v = duration(v)")
            self._append(node.number, "True", depth)
            for f, member in zip(node.type.fields, node.members, strict=True):
                self._append(member.number, f"v[{f.name!r}]", depth)
            return
        logical = read.reader.logical
        digits = f"{logical.precision}, {logical.scale}" if logical else ""
        expression = {
            "text": "str(v, 'utf-8')",
            "bytes": "v",
            "uuid": "uuid_of(v)",
            "decimal": f"decimal(v, {digits})",
            "decimal_text": f"decimal_text(v, {digits})",
        }[conversion(read)]
        self._append(node.number, expression, depth)

    def _enum(self, read: EnumAction, node: ColumnNode, depth: int) -> None:
        self._symbol(read, read.symbols, "the latest schema", depth)
        self._append(node.number, "v", depth)

    def _union(self, read: WriterUnionAction, node: ColumnNode, depth: int) -> None:
        self._integer("int", depth)
        for i, branch in enumerate(read.branches):
            self._line(depth, f"{'if' if i == 0 else 'elif'} v == {i}:")
            before = len(self.lines)
            self.read(branch, node, depth + 1)
            if len(self.lines) == before:
                self._line(depth + 1, "pass")
        if read.branches:
            self._line(depth, "else: raise BadDatum(f'{v} is no branch of the union')")
        else:
            self._line(depth, "raise BadDatum('a union of nothing has no values')")

    def _blocks(self, read: ArrayAction | MapAction, node: ColumnNode, depth: int) -> None:
        assert isinstance(node, (ListNode, MapNode))
        self._loops += 1
        if self._loops > _MAX_LOOPS:
            raise schema_too_large()
        total, count, seen = self._name("n"), self._name("c"), self._name("s")
        least = read.min_size + (1 if isinstance(read, MapAction) else 0)
        self._line(depth, f"{total} = 0")
        if isinstance(read, MapAction):
            self._line(depth, f"{seen} = set()")
        self._line(depth, "while True:")
        self._integer("long", depth + 1)
        self._line(depth + 1, f"{count} = v")
        self._line(depth + 1, "if v == 0: break")
        self._line(depth + 1, "if v < 0:")
        self._line(depth + 2, f"{count} = -v")
        self._integer("long", depth + 2)
        if least:
            self._line(depth + 1, f"if {count} * {least} > L - p: raise IndexError")
        else:
            many = "raise BadDatum('an array has too many items that take no bytes')"
            self._line(depth + 1, f"z += {count}")
            self._line(depth + 1, f"if z > MAX_EMPTY: {many}")
        self._line(depth + 1, f"{total} += {count}")
        self._line(depth + 1, f"for _ in range({count}):")
        if isinstance(node, MapNode):
            assert isinstance(read, MapAction)
            self._bytes(None, depth + 2)
            self._line(depth + 2, "v = str(v, 'utf-8')")
            self._line(
                depth + 2, f"if v in {seen}: raise BadDatum(f'map key {{v!r}} occurs twice')"
            )
            self._line(depth + 2, f"{seen}.add(v)")
            self._append(node.key.number, "v", depth + 2)
            self.read(read.value, node.value, depth + 2)
        else:
            assert isinstance(read, ArrayAction)
            self.read(read.item, node.item, depth + 2)
        self._append(node.number, total, depth)
        self._loops -= 1

    def _skip(self, read: SkipAction, depth: int) -> None:
        self._line(depth, f"p = {self._constant(skipper(read.schema))}(b, p, L)")

    def _value(self, node: ColumnNode, value: Any, depth: int) -> None:
        """Append a constant to every list below `slot`."""
        if isinstance(node, StructNode):
            self._append(node.number, "False" if value is None else "True", depth)
            for f, member in zip(node.type.fields, node.members, strict=True):
                self._value(member, None if value is None else value[f.name], depth)
        elif isinstance(node, ListNode):
            self._append(node.number, "None" if value is None else str(len(value)), depth)
            for item in value or ():
                self._value(node.item, item, depth)
        elif isinstance(node, MapNode):
            self._append(node.number, "None" if value is None else str(len(value)), depth)
            for key, item in (value or {}).items():
                self._append(node.key.number, self._constant(key), depth)
                self._value(node.value, item, depth)
        else:
            self._append(node.number, self._literal(value), depth)

    def _literal(self, value: Any) -> str:
        if value is None or isinstance(value, bool):
            return repr(value)
        return self._constant(value)
