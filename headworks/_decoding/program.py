"""Resolved actions as the table of nodes that drives the compiled decoder.

A `DecoderTable` writes the nodes of unions and skipped values. A subclass says what becomes of the
values that are kept, as a `DecoderSource` does for generated Python.

Rules:

- The nodes do what the generated Python does. Property tests compare the two.
- A writer's record that is skipped is one node, so recursion and repetition cost nothing.
- The table is bounded: MAX_NODES. `headworks/_native/_decoder.c` has the kinds of nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

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
    RecursionAction,
    SkipAction,
    WriterUnionAction,
    unknown_symbol,
)
from headworks.errors import SchemaError
from headworks.schema import (
    Array,
    EnumType,
    Field,
    Fixed,
    Logical,
    MapType,
    Record,
    Schema,
    Union,
)

MAX_NODES: Final = 400_000
_MAX_SIZE = 1 << 62  # bytes; no datum is as long as this
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
Target = TypeVar("Target")


class DecoderNode(NamedTuple):
    """A node of the table; `below` are the numbers of other nodes."""

    kind: str
    below: tuple[int, ...] = ()
    column: int = -1
    size: int = 0
    data: bytes | None = None
    scale: int = 0
    value: Any = None


class DecoderTable(ABC, Generic[Target]):
    """The table of one decoder while it is written; a target is the place of a value."""

    reader_name: ClassVar[str] = "the reader"  # in reasons

    def __init__(self) -> None:
        self._nodes: list[DecoderNode] = []
        self._skipped: dict[int, int] = {}  # node of each skipped record, by id
        # Why a datum that reaches a node is bad; by the node's number in the finished table.
        self.failures: dict[int, str] = {}

    @abstractmethod
    def leaf(self, action: LeafAction, target: Target) -> int:
        """Return the node that reads a leaf."""

    @abstractmethod
    def symbol(self, enum: EnumType, symbol: str, target: Target) -> int:
        """Return the node that takes a symbol of the reader's enum."""

    @abstractmethod
    def default(self, field: Field, target: Target) -> int:
        """Return the node that takes the default of a field."""

    @abstractmethod
    def record(self, action: RecordAction, target: Target) -> int:
        """Return the node that reads a record."""

    @abstractmethod
    def items(self, action: ArrayAction | MapAction, target: Target) -> int:
        """Return the node that reads an array or a map."""

    def recursion(self, action: RecursionAction) -> int:
        """Return the node of a record that holds itself."""
        raise AssertionError(f"a recursive record has no columns: {action.pair}")

    def reader_union(self, action: ReaderUnionAction, target: Target) -> int:
        """Return the node that reads a value as one branch of a union."""
        return self.read(action.action, target)

    def read(self, action: Action, target: Target) -> int:
        """Return the number of the node that carries out `action`."""
        if isinstance(action, LeafAction):
            return self.leaf(action, target)
        if isinstance(action, EnumAction):
            return self._union(
                self._fail(unknown_symbol(self.reader_name, written))
                if symbol is None
                else self.symbol(action.reader, symbol, target)
                for written, symbol in zip(action.written, action.symbols, strict=True)
            )
        if isinstance(action, RecordAction):
            return self.record(action, target)
        if isinstance(action, WriterUnionAction):
            return self._union(self.read(branch, target) for branch in action.branches)
        if isinstance(action, ReaderUnionAction):
            return self.reader_union(action, target)
        if isinstance(action, DefaultAction):
            return self.default(action.field, target)
        if isinstance(action, (ArrayAction, MapAction)):
            return self.items(action, target)
        if isinstance(action, SkipAction):
            return self.skip(action.schema)
        if isinstance(action, RecursionAction):
            return self.recursion(action)
        assert isinstance(action, ErrorAction)
        return self._fail(action.reason)

    def skip(self, schema: Schema) -> int:
        """Return the node that passes over a value of the writer's schema."""
        if takes_nothing(schema):
            return self.add(DecoderNode("skip-width"))
        if isinstance(schema, Record):
            if id(schema) not in self._skipped:
                at = self._skipped[id(schema)] = self.add(DecoderNode("steps"))
                steps = tuple(self.skip(f.type) for f in schema.fields)
                self.replace(at, DecoderNode("steps", steps))
            return self._skipped[id(schema)]
        if isinstance(schema, Union):
            return self._union(self.skip(branch) for branch in schema.branches)
        if isinstance(schema, Array):
            counts = not takes_nothing(schema.items)
            item = (self.skip(schema.items),)
            return self.add(DecoderNode("skip-blocks", item, size=int(counts)))
        if isinstance(schema, MapType):
            entry = (self.add(DecoderNode("skip-bytes")), self.skip(schema.values))
            return self.add(DecoderNode("skip-blocks", entry, size=1))
        if isinstance(schema, Fixed):
            return self.add(DecoderNode("skip-width", size=bounded(schema.size)))
        if isinstance(schema, EnumType) or schema.kind in ("int", "long"):
            return self.add(DecoderNode("skip-number"))
        if schema.kind in ("bytes", "string"):
            return self.add(DecoderNode("skip-bytes"))
        return self.add(DecoderNode("skip-width", size=_WIDTHS[schema.kind]))

    def add(self, node: DecoderNode) -> int:
        """Add a node; return its number."""
        if len(self._nodes) >= MAX_NODES:
            raise schema_too_large()
        self._nodes.append(node)
        return len(self._nodes) - 1

    def replace(self, at: int, node: DecoderNode) -> None:
        """Put a node in the place of one that was added before what is below it."""
        self._nodes[at] = node

    def finish(self, root: int) -> tuple[DecoderNode, ...]:
        """Return the table, whose first node is the whole datum."""
        return (DecoderNode("steps", (root + 1,)), *map(_after_first, self._nodes))

    def _union(self, branches: Iterable[int]) -> int:
        return self.add(DecoderNode("union", tuple(branches)))

    def _fail(self, reason: str) -> int:
        at = self.add(DecoderNode("fail"))
        self.failures[at + 1] = reason  # `finish` puts a node before all others
        return at


def bounded(size: int) -> int:
    """Return a size of a schema, which may be any number, as one of 64 bits."""
    return min(size, _MAX_SIZE)


def decimal_limits(logical: Logical) -> bytes:
    """Return the two numbers next to those that a decimal holds."""
    limit = 10**logical.precision
    width = limit.bit_length() // 8 + 1
    return b"".join(n.to_bytes(width, "big", signed=True) for n in (-limit, limit))


def schema_too_large() -> SchemaError:
    """Return the error for a schema whose decoder would be too large."""
    return SchemaError(
        "the schema is nested too deeply, or too large, to be loaded",
        rule="decoder-size",
        fix="flatten it, or keep the deep part as a bytes field",
    )


def _after_first(node: DecoderNode) -> DecoderNode:
    return node._replace(below=tuple(at + 1 for at in node.below)) if node.below else node
