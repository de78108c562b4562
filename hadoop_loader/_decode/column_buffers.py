"""Where the kernel writes, and how Arrow columns come out of it.

Rules:

- Three arenas (a flag for each element, 64-bit words, text), in which each slot has a stretch; a
  slot that is full gets a longer one, and what it holds moves with it. The kernel is told the
  stretches and checks them; nothing grows while it runs.
- A flag says that an element is not null. Lists and text have the place where each element ends.
- What is taken out is copied at its own width (a boolean is a bit), so the arenas are used again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hadoop_loader._decode.column_builders import (
    ArrowArray,
    LeafSlot,
    ListSlot,
    MapSlot,
    Slot,
    StructSlot,
    slots_of,
)
from hadoop_loader._tables.arrow_types import arrow_type
from hadoop_loader._tables.columns import (
    BINARY,
    BOOLEAN,
    DATE,
    INT,
    STRING,
    ColumnType,
    Decimal,
    StructField,
)
from headworks.errors import SchemaError

__all__ = ["Buffers"]

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_NOTHING, _WORD, _WORDS, _TEXT, _LIST = range(5)
_WIDTH = (0, 1, 2, 1, 1)
_FIRST_TEXT = 4096
_TELLING = 32  # so many datums say what the others are like
_MOST = 2**31 - 1  # what Arrow's offsets of 32 bits can say


@dataclass(slots=True)
class _Shape:
    """What a slot holds, the slot that counts its items, and the list slot that it is inside."""

    kind: int
    child: int = 0
    inside: int = -1


class Buffers:
    """Room for the columns of one table."""

    def __init__(self, columns: tuple[StructField, ...]) -> None:
        self.slots, count = slots_of(columns)
        self._shapes = [_Shape(_NOTHING)] * count
        for slot in self.slots:
            self._shape(slot, -1)
        self.sizes = np.zeros(count, np.int64)
        self.texts = np.zeros(count, np.int64)
        self.rooms = np.zeros(count, np.int64)
        self.layout = np.zeros((count, 6), np.int64)
        self.flags: Bytes = np.zeros(0, np.uint8)
        self.words: Numbers = np.zeros(0, np.int64)
        self.heap: Bytes = np.zeros(0, np.uint8)
        self._rows = 0
        kinds = np.array([shape.kind for shape in self._shapes], np.int64)
        self._lists = kinds == _LIST
        self._text_rooms = np.where(kinds == _TEXT, _FIRST_TEXT, 0).astype(np.int64)

    def reserve(self, rows: int, size: int) -> None:
        """Have room for so many rows of `size` bytes; what is too little shows as they are read.

        A list has an item a row, a slot of text twice an equal share: a page that nothing is
        written to costs nothing, and each time that all is laid out again costs as much as some
        hundred rows.
        """
        texts = self._text_rooms > 0
        share = min(2 * size // max(1, int(np.count_nonzero(texts))), _MOST)
        if rows > self._rows or (self._text_rooms[texts] < share).any():
            self._rows = max(rows, self._rows)
            np.maximum(self._text_rooms, share, out=self._text_rooms, where=texts)
            np.maximum(self.rooms, self._rows, out=self.rooms, where=self._lists)
            self._lay_out()

    def grow_items(self, slot: int) -> None:
        """Twice the room for the items of a list."""
        self.rooms[slot] = _larger(int(self.rooms[slot]), max(self._rows, 16))
        self._lay_out()

    def grow_text(self, slot: int, done: int, of: int, left: int) -> None:
        """Twice the room for the text of a slot, and for all what they will come to need.

        After `done` of `of` datums it is known how much text each has; `left` bytes of datums are
        still to be read, and no slot takes more than those (but for defaults).
        """
        rooms = self._text_rooms
        rooms[slot] = _larger(int(rooms[slot]), _FIRST_TEXT)
        if done >= _TELLING:
            wanted = self.texts * of // done
            likely = np.minimum(wanted + wanted // 8, self.texts + left)
            np.maximum(rooms, np.minimum(likely, _MOST), out=rooms)
        self._lay_out()

    def take(self) -> list[ArrowArray]:
        """The columns as Arrow arrays; empty afterwards."""
        arrays = [self._array(slot) for slot in self.slots]
        self.sizes[:] = 0
        self.texts[:] = 0
        return arrays

    def _shape(self, slot: Slot, inside: int) -> None:
        if isinstance(slot, StructSlot):
            self._shapes[slot.at] = _Shape(_NOTHING, inside=inside)
            for member in slot.members:
                self._shape(member, inside)
        elif isinstance(slot, ListSlot):
            self._shapes[slot.at] = _Shape(_LIST, slot.item.at, inside)
            self._shape(slot.item, slot.at)
        elif isinstance(slot, MapSlot):
            self._shapes[slot.at] = _Shape(_LIST, slot.key.at, inside)
            self._shape(slot.key, slot.at)
            self._shape(slot.value, slot.at)
        else:
            self._shapes[slot.at] = _Shape(_kind(slot.type), inside=inside)

    def _lay_out(self) -> None:
        """Make the arenas as large as the rooms say, and move what there is."""
        old = self.layout.copy()
        flags = words = heap = 0
        rooms, texts = self.rooms.tolist(), self._text_rooms.tolist()
        layout = []
        for shape, text in zip(self._shapes, texts, strict=True):
            room = self._rows if shape.inside < 0 else rooms[shape.inside]
            layout.append((flags, words, heap, text, shape.kind, shape.child))
            flags += room
            words += room * _WIDTH[shape.kind]
            heap += text
        self.layout[:] = layout
        self.flags = self._moved(self.flags, flags, old, 0, self.sizes)
        widths = np.array([_WIDTH[shape.kind] for shape in self._shapes], np.int64)
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

    def _array(self, slot: Slot) -> ArrowArray:
        count = int(self.sizes[slot.at])
        begin = int(self.layout[slot.at, 0])
        flags = self.flags[begin : begin + count]
        nulls = count - int(np.count_nonzero(flags))
        there = _bits(flags) if nulls else None
        type_ = arrow_type(slot.type)
        if isinstance(slot, LeafSlot):
            return pa.Array.from_buffers(
                type_, count, [there, *self._leaf(slot, count)], null_count=nulls
            )
        if isinstance(slot, StructSlot):
            children = [self._array(member) for member in slot.members]
            return pa.Array.from_buffers(type_, count, [there], nulls, children=children)
        if isinstance(slot, MapSlot):
            keys, values = self._array(slot.key), self._array(slot.value)
            entries: Any = pa.StructArray.from_arrays(
                [keys, values], fields=[type_.key_field, type_.item_field]
            )
        else:
            entries = self._array(slot.item)
        return pa.Array.from_buffers(
            type_, count, [there, self._ends(slot.at, count)], nulls, children=[entries]
        )

    def _leaf(self, slot: LeafSlot, count: int) -> list[pa.Buffer]:
        at, type_ = slot.at, slot.type
        kind, begin = int(self.layout[at, 4]), int(self.layout[at, 1])
        words = self.words[begin : begin + count * _WIDTH[kind]]
        if kind == _TEXT:
            text = int(self.layout[at, 2])
            content = self.heap[text : text + int(self.texts[at])].copy()
            return [self._ends(at, count), _buffer(content)]
        if type_ == BOOLEAN:
            return [_bits(words)]
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
    return _WORDS if isinstance(type_, Decimal) else _WORD


def _bits(flags: npt.NDArray[Any]) -> pa.Buffer:
    return _buffer(np.packbits(flags, bitorder="little"))


def _larger(room: int, least: int) -> int:
    if room >= _MOST:
        raise SchemaError(
            "the values of one column of one batch take more than 2 GiB",
            rule="table-size",
            fix="shorten the default of the field, or keep it as a bytes field of its own",
        )
    return min(_MOST, max(2 * room, least))
