"""The decoder that needs no compiler: generated Python that appends values to columns.

Rules:

- One function per (writer, reader) pair loops over datums and appends to the lists of
  `ColumnBuilders`. Resolution is decided before, so the function has no schema in it.
- A datum must end exactly where its bytes do. A datum that breaks a rule costs itself: its appends
  are cut, and its index is reported with the reason.
- A schema that Python's parser cannot take (too deep, too large) raises SchemaError.
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
from hadoop_loader._decode.conversions import READER_NAME, conversion
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
from headworks._decoding.generated_decoder import SCOPE, DecoderSource
from headworks._decoding.program import schema_too_large
from headworks._decoding.resolution import (
    Action,
    ArrayAction,
    EnumAction,
    ErrorAction,
    LeafAction,
    MapAction,
    ReaderUnionAction,
    RecordAction,
    SkipAction,
)
from headworks.schema import Field

_MAX_DEPTH = 81
_MAX_LOOPS = 8
_MAX_LINES = 60_000
_BODY_DEPTH = 5

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
# By the name of a leaf's conversion; {0} and {1} are precision and scale of a decimal.
_EXPRESSIONS = {
    "": "v",
    "double": "float(v)",
    "float32": "float32(v)",
    "millis_to_micros": "millis(v)",
    "nanos_to_micros": "v // 1000",
    "text": "str(v, 'utf-8')",
    "bytes": "v",
    "uuid": "uuid_of(v)",
    "decimal": "decimal(v, {0}, {1})",
    "decimal_text": "decimal_text(v, {0}, {1})",
}


def generate(action: Action, columns: ColumnBuilders) -> Decode:
    """Return the function `decode(values, start, errors) -> rows`; a datum begins at `start`.

    It appends the good datums to `columns`, and to `errors` the index and reason of the others.
    """
    text, constants = source(action, columns)
    scope = {**_GIVEN, **constants}
    exec(compile(text, "<headworks decoder>", "exec"), scope)
    make: Callable[[ColumnBuilders], Decode] = scope["make"]
    return make(columns)


def source(action: Action, columns: ColumnBuilders) -> tuple[str, dict[str, Any]]:
    """Return the source of the decoder, and the constants that it refers to."""
    writer = _ColumnSource()
    top = StructNode(-1, StructColumn(columns.columns), columns.nodes)
    if isinstance(action, RecordAction):
        writer.fields(action, top, _BODY_DEPTH)
        if not writer.lines:
            writer.lines.append(" " * _BODY_DEPTH + "pass")
    elif isinstance(action, ErrorAction) or not columns.columns:
        writer.read(action, top, _BODY_DEPTH)
    else:
        writer.read(action, columns.nodes[0], _BODY_DEPTH)
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
    return text, {**writer.constants, "reason": datum_reason}


def datum_reason(error: Exception) -> str:
    """Return why a datum is bad, for one of DATUM_ERRORS."""
    if isinstance(error, (IndexError, struct.error)):
        return "the datum ends too early"
    if isinstance(error, RecursionError):
        return "the datum is nested too deeply"
    return str(error)


class _ColumnSource(DecoderSource[ColumnNode]):
    """The source of a decoder whose values go to columns: a target is a column node."""

    empty_items = "z"
    reader_name = READER_NAME
    block_line = "{} += {}"

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int] = set()  # numbers of the nodes that the lines append to

    def fields(self, action: RecordAction, node: StructNode, depth: int) -> None:
        """Write the lines of a record's fields."""
        for field, step in action.steps:
            if field is None:
                assert isinstance(step, SkipAction)
                self.skip(step, depth)
            else:
                self.read(step, node.member(field.name), depth)

    def store(self, target: ColumnNode, expression: str, depth: int) -> None:
        self.used.add(target.number)
        self._line(depth, f"a{target.number}({expression})")

    def null(self, target: ColumnNode, depth: int) -> None:
        self._append(target, None, depth)

    def convert(self, action: LeafAction, target: ColumnNode, depth: int) -> None:
        if isinstance(target, StructNode):
            self._line(depth, "v = duration(v)")
            self.store(target, "True", depth)
            for f, member in zip(target.type.fields, target.members, strict=True):
                self.store(member, f"v[{f.name!r}]", depth)
            return
        logical = action.reader.logical
        digits = (logical.precision, logical.scale) if logical else ()
        self.store(target, _EXPRESSIONS[conversion(action)].format(*digits), depth)

    def symbols(self, action: EnumAction) -> Sequence[Any]:
        return action.symbols

    def default(self, field: Field, target: ColumnNode, depth: int) -> None:
        self._append(target, column_default(field), depth)

    def record(self, action: RecordAction, target: ColumnNode, depth: int) -> None:
        assert isinstance(target, StructNode)
        self.store(target, "True", depth)
        self.fields(action, target, depth)
        if not action.reader.fields:
            self._append(target.member(EMPTY_FIELD), True, depth)

    def reader_union(self, action: ReaderUnionAction, target: ColumnNode, depth: int) -> None:
        # A branch of a union that is several columns fills one of them; the others are null.
        names = union_names(action.union)
        if names is None or action.branch not in names:
            self.read(action.action, target, depth)
            return
        assert isinstance(target, StructNode)
        self.store(target, "True", depth)
        for f, member in zip(target.type.fields, target.members, strict=True):
            if f.name == names[action.branch]:
                self.read(action.action, member, depth)
            else:
                self._append(member, None, depth)

    def begin_items(self, action: ArrayAction | MapAction, depth: int) -> str:
        if self._loops > _MAX_LOOPS:
            raise schema_too_large()
        total = self._name("n")
        self._line(depth, f"{total} = 0")
        if isinstance(action, MapAction):
            self._line(depth, f"{total}_keys = set()")
        return total

    def item(
        self, action: ArrayAction | MapAction, target: ColumnNode, items: str, depth: int
    ) -> ColumnNode:
        if isinstance(action, ArrayAction):
            assert isinstance(target, ListNode)
            return target.item
        assert isinstance(target, MapNode)
        self._line(depth, "v = str(v, 'utf-8')")
        twice = "raise BadDatum(f'map key {v!r} occurs twice')"
        self._line(depth, f"if v in {items}_keys: {twice}")
        self._line(depth, f"{items}_keys.add(v)")
        self.store(target.key, "v", depth)
        return target.value

    def _line(self, depth: int, text: str) -> None:
        if depth > _MAX_DEPTH or len(self.lines) > _MAX_LINES:
            raise schema_too_large()
        super()._line(depth, text)

    def _append(self, node: ColumnNode, value: Any, depth: int) -> None:
        """Append a constant to every list below `node`."""
        if isinstance(node, StructNode):
            self.store(node, str(value is not None), depth)
            for f, member in zip(node.type.fields, node.members, strict=True):
                self._append(member, None if value is None else value[f.name], depth)
        elif isinstance(node, (ListNode, MapNode)):
            self.store(node, "None" if value is None else str(len(value)), depth)
            if isinstance(node, ListNode):
                for item in value or ():
                    self._append(node.item, item, depth)
            else:
                for key, item in (value or {}).items():
                    self._append(node.key, key, depth)
                    self._append(node.value, item, depth)
        else:
            plain = value is None or isinstance(value, bool)
            self.store(node, repr(value) if plain else self._constant(value), depth)
