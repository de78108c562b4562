"""Where decoded Python values collect: one list per column node, and Arrow columns from them.

Rules:

- Nodes are numbered depth first, as Arrow numbers field nodes. A leaf has a list of values, a
  struct a list of "is present", an array or map a list of lengths (None: null).
- So a row is undone by cutting lists, and Arrow arrays are built without an object per row.
- A null struct, and the other branches of a union, still append to every leaf below. Children of a
  struct are as long as the struct; children of an array hold only its items.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hadoop_loader._tables.arrow_types import arrow_type
from hadoop_loader._tables.columns import (
    DATE,
    STRING,
    ColumnType,
    ListColumn,
    MapColumn,
    StructColumn,
    StructField,
)

# An array of pyarrow; its element type is known only once a schema is.
ArrowArray = Any


@dataclass(frozen=True, slots=True)
class LeafNode:
    """A node with one value per row."""

    number: int
    type: ColumnType


@dataclass(frozen=True, slots=True)
class StructNode:
    """A node that says whether the struct is present, and its members in order."""

    number: int
    type: StructColumn
    members: tuple[ColumnNode, ...]

    def member(self, name: str) -> ColumnNode:
        """Return the node of the member of that name."""
        return next(
            node for f, node in zip(self.type.fields, self.members, strict=True) if f.name == name
        )


@dataclass(frozen=True, slots=True)
class ListNode:
    """A node with the length of each array."""

    number: int
    type: ListColumn
    item: ColumnNode


@dataclass(frozen=True, slots=True)
class MapNode:
    """A node with the length of each map."""

    number: int
    type: MapColumn
    key: LeafNode
    value: ColumnNode


ColumnNode = LeafNode | StructNode | ListNode | MapNode


def nodes_of(columns: tuple[StructField, ...]) -> tuple[tuple[ColumnNode, ...], int]:
    """Return the nodes of a table's columns, and the number of all nodes, inner ones included."""
    numbers = itertools.count()

    def node(type_: ColumnType) -> ColumnNode:
        at = next(numbers)
        if isinstance(type_, StructColumn):
            return StructNode(at, type_, tuple(node(f.type) for f in type_.fields))
        if isinstance(type_, ListColumn):
            return ListNode(at, type_, node(type_.item))
        if isinstance(type_, MapColumn):
            return MapNode(at, type_, LeafNode(next(numbers), STRING), node(type_.value))
        return LeafNode(at, type_)

    return tuple(node(column.type) for column in columns), next(numbers)


class ColumnBuilders:
    """The lists of a table's columns: appended to by generated code, cut, and taken as Arrow."""

    def __init__(self, columns: tuple[StructField, ...]) -> None:
        self.columns = columns  # the table's data columns
        self.nodes, count = nodes_of(columns)
        self.lists: list[list[Any]] = [[] for _ in range(count)]  # values, by node number
        # The lists of simple columns, and all other columns: `cut` shortens both.
        self._simple = [self.lists[n.number] for n in self.nodes if isinstance(n, LeafNode)]
        self._compound = [n for n in self.nodes if not isinstance(n, LeafNode)]
        # By number of a list node: how far its items were counted, (rows, items so far).
        self._counted: dict[int, tuple[int, int]] = {}

    def cut(self, rows: int) -> None:
        """Remove everything after the first `rows` rows."""
        for values in self._simple:
            del values[rows:]
        for node in self._compound:
            self._cut(node, rows)

    def take(self) -> list[ArrowArray]:
        """Return the columns as Arrow arrays and empty the lists."""
        arrays = [self._array(node) for node in self.nodes]
        for values in self.lists:
            values.clear()
        self._counted.clear()
        return arrays

    def _cut(self, node: ColumnNode, length: int) -> None:
        if isinstance(node, StructNode):
            for member in node.members:
                self._cut(member, length)
        elif isinstance(node, (ListNode, MapNode)):
            items = self._items(node.number, length)
            if isinstance(node, MapNode):
                self._cut(node.key, items)
            self._cut(node.value if isinstance(node, MapNode) else node.item, items)
        del self.lists[node.number][length:]

    def _items(self, at: int, length: int) -> int:
        """Count the items in the first `length` arrays of a node, from the last count on."""
        rows, items = self._counted.get(at, (0, 0))
        if rows > length:
            rows, items = 0, 0
        added: int = sum(n for n in self.lists[at][rows:length] if n)
        items += added
        self._counted[at] = (length, items)
        return items

    def _array(self, node: ColumnNode) -> ArrowArray:
        values = self.lists[node.number]
        if isinstance(node, LeafNode):
            return _leaf_array(values, node.type)
        if isinstance(node, StructNode):
            mask = None if all(values) else pa.array([not there for there in values])
            members = [self._array(member) for member in node.members]
            fields = list(arrow_type(node.type))
            return pa.StructArray.from_arrays(members, fields=fields, mask=mask)
        lengths = (n or 0 for n in values)
        offsets = pa.array(list(itertools.accumulate(lengths, initial=0)), pa.int32())
        mask = pa.array([n is None for n in values]) if None in values else None
        if isinstance(node, MapNode):
            keys, items = self._array(node.key), self._array(node.value)
            type_ = arrow_type(node.type)
            make: Any = pa.MapArray.from_arrays
            return make(offsets, keys, items, type=type_, mask=mask)
        item = self._array(node.item)
        type_ = arrow_type(node.type)
        make = pa.ListArray.from_arrays
        return make(offsets, item, type=type_, mask=mask)


def _leaf_array(values: list[Any], type_: ColumnType) -> ArrowArray:
    if type_ == DATE:
        return pa.array(values, pa.int32()).cast(pa.date32())
    return pa.array(values, arrow_type(type_))
