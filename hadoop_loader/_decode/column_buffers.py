"""The buffers that compiled decoding writes to, and the Arrow columns made from them.

Rules:

- There are three arenas: a flag for each element, 64-bit words, and text. Each column node has a
  stretch in them. When a stretch is full, it is moved to a longer one.
- `decode_vm` gets the stretches and checks them. Nothing grows while it runs.
- A flag says that an element is not null. Lists and text hold the position where each element ends.
- Arrow arrays get a copy of their own width (a boolean is a bit), so the arenas are used again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hadoop_loader._decode.column_builders import (
    ArrowArray,
    ColumnNode,
    LeafNode,
    ListNode,
    MapNode,
    StructNode,
    nodes_of,
)
from hadoop_loader._tables.arrow_types import arrow_type
from hadoop_loader._tables.columns import (
    BINARY,
    BOOLEAN,
    DATE,
    INT,
    STRING,
    ColumnType,
    DecimalColumn,
    StructField,
)
from headworks.errors import SchemaError

__all__ = ["ColumnBuffers"]

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_NO_VALUE, _ONE_WORD, _TWO_WORDS, _TEXT, _LIST = range(5)
_WORDS_OF_KIND = (0, 1, 2, 1, 1)
_FIRST_TEXT_BYTES = 4096
_SAMPLE_DATUMS = 32  # enough to estimate the text of the others
_MAX_OFFSET = 2**31 - 1  # Arrow's offsets have 32 bits


@dataclass(slots=True)
class _NodeLayout:
    """The buffers of one column node."""

    kind: int  # one of _NO_VALUE to _LIST
    child: int = 0  # number of the node that counts the items
    inside: int = -1  # number of the list around it; -1 if none


class ColumnBuffers:
    """The buffers for the columns of one table."""

    def __init__(self, columns: tuple[StructField, ...]) -> None:
        self.nodes, count = nodes_of(columns)
        self._shapes = [_NodeLayout(_NO_VALUE)] * count
        for node in self.nodes:
            self._shape(node, -1)
        self.sizes = np.zeros(count, np.int64)  # elements in each node
        self.texts = np.zeros(count, np.int64)  # bytes of text in each node
        self.rooms = np.zeros(count, np.int64)  # items that each list has room for
        # Per node: where its flags, words, and text begin, its text room, kind, and child.
        self.layout = np.zeros((count, 6), np.int64)
        self.flags: Bytes = np.zeros(0, np.uint8)  # one per element: 1 if it is not null
        self.words: Numbers = np.zeros(0, np.int64)  # values, and the ends of text and lists
        self.heap: Bytes = np.zeros(0, np.uint8)  # text of all nodes
        self._rows = 0  # rows that there is room for
        kinds = np.array([shape.kind for shape in self._shapes], np.int64)
        self._lists = kinds == _LIST  # which nodes are lists
        # Bytes of text that each node has room for.
        self._text_rooms = np.where(kinds == _TEXT, _FIRST_TEXT_BYTES, 0).astype(np.int64)

    def reserve(self, rows: int, size: int) -> None:
        """Make room for this many rows of `size` bytes in all; `grow_*` correct the estimate.

        A list gets one item per row, and each text node twice an equal share of the bytes. Unused
        pages cost nothing, while one more layout costs as much as decoding some hundred rows.
        """
        texts = self._text_rooms > 0
        share = min(2 * size // max(1, int(np.count_nonzero(texts))), _MAX_OFFSET)
        if rows > self._rows or (self._text_rooms[texts] < share).any():
            self._rows = max(rows, self._rows)
            np.maximum(self._text_rooms, share, out=self._text_rooms, where=texts)
            np.maximum(self.rooms, self._rows, out=self.rooms, where=self._lists)
            self._lay_out()

    def grow_items(self, node: int) -> None:
        """Double the room for the items of a list."""
        self.rooms[node] = _doubled(int(self.rooms[node]), max(self._rows, 16))
        self._lay_out()

    def grow_text(self, node: int, done: int, of: int, left: int) -> None:
        """Double the room for the text of a node, and give all nodes the room they will need.

        After `done` of `of` datums it is known how much text each node has. `left` bytes of datums
        are still to be read, and apart from defaults no node takes more than those.
        """
        rooms = self._text_rooms
        rooms[node] = _doubled(int(rooms[node]), _FIRST_TEXT_BYTES)
        if done >= _SAMPLE_DATUMS:
            wanted = self.texts * of // done
            likely = np.minimum(wanted + wanted // 8, self.texts + left)
            np.maximum(rooms, np.minimum(likely, _MAX_OFFSET), out=rooms)
        self._lay_out()

    def take(self) -> list[ArrowArray]:
        """Return the columns as Arrow arrays and empty the buffers."""
        arrays = [self._array(node) for node in self.nodes]
        self.sizes[:] = 0
        self.texts[:] = 0
        return arrays

    def _shape(self, node: ColumnNode, inside: int) -> None:
        if isinstance(node, StructNode):
            self._shapes[node.number] = _NodeLayout(_NO_VALUE, inside=inside)
            for member in node.members:
                self._shape(member, inside)
        elif isinstance(node, ListNode):
            self._shapes[node.number] = _NodeLayout(_LIST, node.item.number, inside)
            self._shape(node.item, node.number)
        elif isinstance(node, MapNode):
            self._shapes[node.number] = _NodeLayout(_LIST, node.key.number, inside)
            self._shape(node.key, node.number)
            self._shape(node.value, node.number)
        else:
            self._shapes[node.number] = _NodeLayout(_kind(node.type), inside=inside)

    def _lay_out(self) -> None:
        """Resize the arenas to the rooms, and move what they hold."""
        old = self.layout.copy()
        flags = words = heap = 0
        rooms, texts = self.rooms.tolist(), self._text_rooms.tolist()
        layout = []
        for shape, text in zip(self._shapes, texts, strict=True):
            room = self._rows if shape.inside < 0 else rooms[shape.inside]
            layout.append((flags, words, heap, text, shape.kind, shape.child))
            flags += room
            words += room * _WORDS_OF_KIND[shape.kind]
            heap += text
        self.layout[:] = layout
        self.flags = self._moved(self.flags, flags, old, 0, self.sizes)
        widths = np.array([_WORDS_OF_KIND[shape.kind] for shape in self._shapes], np.int64)
        self.words = self._moved(self.words, words, old, 1, self.sizes * widths)
        self.heap = self._moved(self.heap, heap, old, 2, self.texts)

    def _moved(self, arena: Any, size: int, old: Numbers, column: int, used: Numbers) -> Any:
        moved = np.empty(size, arena.dtype)
        places = zip(
            old[:, column].tolist(), self.layout[:, column].tolist(), used.tolist(), strict=True
        )
        for begin, there, count in places:
            if count:
                moved[there : there + count] = arena[begin : begin + count]
        return moved

    def _array(self, node: ColumnNode) -> ArrowArray:
        count = int(self.sizes[node.number])
        begin = int(self.layout[node.number, 0])
        flags = self.flags[begin : begin + count]
        nulls = count - int(np.count_nonzero(flags))
        there = _bitmap(flags) if nulls else None
        type_ = arrow_type(node.type)
        if isinstance(node, LeafNode):
            return pa.Array.from_buffers(
                type_, count, [there, *self._leaf(node, count)], null_count=nulls
            )
        if isinstance(node, StructNode):
            children = [self._array(member) for member in node.members]
            return pa.Array.from_buffers(type_, count, [there], nulls, children=children)
        if isinstance(node, MapNode):
            keys, values = self._array(node.key), self._array(node.value)
            entries: Any = pa.StructArray.from_arrays(
                [keys, values], fields=[type_.key_field, type_.item_field]
            )
        else:
            entries = self._array(node.item)
        return pa.Array.from_buffers(
            type_, count, [there, self._ends(node.number, count)], nulls, children=[entries]
        )

    def _leaf(self, node: LeafNode, count: int) -> list[pa.Buffer]:
        at, type_ = node.number, node.type
        kind, begin = int(self.layout[at, 4]), int(self.layout[at, 1])
        words = self.words[begin : begin + count * _WORDS_OF_KIND[kind]]
        if kind == _TEXT:
            text = int(self.layout[at, 2])
            content = self.heap[text : text + int(self.texts[at])].copy()
            return [self._ends(at, count), _buffer(content)]
        if type_ == BOOLEAN:
            return [_bitmap(words)]
        return [_buffer(words.astype(np.int32) if type_ in (INT, DATE) else words.copy())]

    def _ends(self, at: int, count: int) -> pa.Buffer:
        ends = np.zeros(count + 1, np.int32)
        begin = int(self.layout[at, 1])
        ends[1:] = self.words[begin : begin + count]
        return _buffer(ends)


def _buffer(content: Any) -> pa.Buffer:
    return pa.py_buffer(content)


def _kind(type_: ColumnType) -> int:
    if type_ in (STRING, BINARY):
        return _TEXT
    return _TWO_WORDS if isinstance(type_, DecimalColumn) else _ONE_WORD


def _bitmap(flags: npt.NDArray[Any]) -> pa.Buffer:
    return _buffer(np.packbits(flags, bitorder="little"))


def _doubled(room: int, least: int) -> int:
    if room >= _MAX_OFFSET:
        raise SchemaError(
            "the values of one column of one batch take more than 2 GiB",
            rule="table-size",
            fix="shorten the default of the field, or keep it as a bytes field of its own",
        )
    return min(_MAX_OFFSET, max(2 * room, least))
