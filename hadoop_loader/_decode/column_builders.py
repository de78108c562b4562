"""Where decoded values go: one flat Python list per leaf, and what ties them into nested columns.

Rules:

- Every leaf has a list; a struct adds a list of "is there", an array or map a list of lengths
  (None: null). So a row is undone by cutting lists, and Arrow arrays are built without objects.
- A null struct or a union's other branches still append to every leaf below, so that children of
  a struct are always as long as the struct; children of an array hold only what arrays hold.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hadoop_loader._tables.arrow_types import arrow_type
from hadoop_loader._tables.columns import (
    DATE,
    STRING,
    ColumnType,
    ListOf,
    MapOf,
    Struct,
    StructField,
)

__all__ = [
    "ArrowArray",
    "Columns",
    "LeafSlot",
    "ListSlot",
    "MapSlot",
    "Slot",
    "StructSlot",
    "slots_of",
]


# What pyarrow builds; its element type is known only when a schema is.
ArrowArray = Any


@dataclass(frozen=True, slots=True)
class LeafSlot:
    """One value a row, in list `at`."""

    at: int
    type: ColumnType


@dataclass(frozen=True, slots=True)
class StructSlot:
    """`at`: whether the struct is there; its members in order."""

    at: int
    type: Struct
    members: tuple[Slot, ...]

    def member(self, name: str) -> Slot:
        """The slot of the member of that name."""
        return next(
            slot for f, slot in zip(self.type.fields, self.members, strict=True) if f.name == name
        )


@dataclass(frozen=True, slots=True)
class ListSlot:
    """`at`: the length of each array."""

    at: int
    type: ListOf
    item: Slot


@dataclass(frozen=True, slots=True)
class MapSlot:
    """`at`: the length of each map."""

    at: int
    type: MapOf
    key: LeafSlot
    value: Slot


Slot = LeafSlot | StructSlot | ListSlot | MapSlot


def slots_of(columns: tuple[StructField, ...]) -> tuple[tuple[Slot, ...], int]:
    """The slots of a table's columns, and how many they are with all that is inside them."""
    numbers = itertools.count()

    def slot(type_: ColumnType) -> Slot:
        at = next(numbers)
        if isinstance(type_, Struct):
            return StructSlot(at, type_, tuple(slot(f.type) for f in type_.fields))
        if isinstance(type_, ListOf):
            return ListSlot(at, type_, slot(type_.item))
        if isinstance(type_, MapOf):
            return MapSlot(at, type_, LeafSlot(next(numbers), STRING), slot(type_.value))
        return LeafSlot(at, type_)

    return tuple(slot(column.type) for column in columns), next(numbers)


class Columns:
    """The lists of a table's columns, their undo, and their way into Arrow."""

    def __init__(self, columns: tuple[StructField, ...]) -> None:
        self.columns = columns
        self.slots, count = slots_of(columns)
        self.lists: list[list[Any]] = [[] for _ in range(count)]
        # For each list of lengths: how far its children were counted, (rows, items so far).
        self._counted: dict[int, tuple[int, int]] = {}

    def cut(self, rows: int) -> None:
        """Forget what was appended after the first `rows` rows."""
        for slot in self.slots:
            self._cut(slot, rows)

    def take(self) -> list[ArrowArray]:
        """The columns as Arrow arrays; the lists are empty afterwards."""
        arrays = [self._array(slot) for slot in self.slots]
        for values in self.lists:
            values.clear()
        self._counted.clear()
        return arrays

    def _cut(self, slot: Slot, length: int) -> None:
        if isinstance(slot, StructSlot):
            for member in slot.members:
                self._cut(member, length)
        elif isinstance(slot, (ListSlot, MapSlot)):
            items = self._items(slot.at, length)
            if isinstance(slot, MapSlot):
                self._cut(slot.key, items)
            self._cut(slot.value if isinstance(slot, MapSlot) else slot.item, items)
        del self.lists[slot.at][length:]

    def _items(self, at: int, length: int) -> int:
        """Items in the first `length` arrays of list `at`; counts on from the last time."""
        rows, items = self._counted.get(at, (0, 0))
        if rows > length:
            rows, items = 0, 0
        added: int = sum(n for n in self.lists[at][rows:length] if n)
        items += added
        self._counted[at] = (length, items)
        return items

    def _array(self, slot: Slot) -> ArrowArray:
        values = self.lists[slot.at]
        if isinstance(slot, LeafSlot):
            return _leaf_array(values, slot.type)
        if isinstance(slot, StructSlot):
            there = np.array(values, dtype=np.bool_)
            mask = None if there.all() else pa.array(~there)
            members = [self._array(member) for member in slot.members]
            fields = list(arrow_type(slot.type))
            return pa.StructArray.from_arrays(members, fields=fields, mask=mask)
        lengths = np.array([n or 0 for n in values], dtype=np.int64)
        offsets = np.zeros(len(values) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        nulls = np.array([n is None for n in values], dtype=np.bool_)
        mask = pa.array(nulls) if nulls.any() else None
        if isinstance(slot, MapSlot):
            keys, items = self._array(slot.key), self._array(slot.value)
            type_ = arrow_type(slot.type)
            make: Any = pa.MapArray.from_arrays
            return make(pa.array(offsets, pa.int32()), keys, items, type=type_, mask=mask)
        item = self._array(slot.item)
        type_ = arrow_type(slot.type)
        make = pa.ListArray.from_arrays
        return make(pa.array(offsets, pa.int32()), item, type=type_, mask=mask)


def _leaf_array(values: list[Any], type_: ColumnType) -> ArrowArray:
    if type_ == DATE:
        return pa.array(values, pa.int32()).cast(pa.date32())
    return pa.array(values, arrow_type(type_))
