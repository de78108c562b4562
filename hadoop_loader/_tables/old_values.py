"""A value of an old row as a tree: from the stored columns to the value in the latest schema.

Rule: a tree says which value, and not how it is computed. `views` writes it as SQL, and
`_tasks.latest_rows` computes it with Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hadoop_loader._tables.columns import ColumnType, ListColumn, MapColumn, StructColumn


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A column of the table over files."""

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class ItemValue:
    """The item of the innermost list or map around it."""


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A member of a struct."""

    of: OldValue
    name: str


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """The same value in every row (see `defaults`)."""

    value: Any
    type: ColumnType


@dataclass(frozen=True, slots=True)
class CastValue:
    """A value in another type. `how`: cast, float, uuid_text, uuid_bytes, or, of numbers,
    timestamp_millis, timestamp_micros, unix_millis, unix_micros, or days.
    """

    of: OldValue
    how: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class SymbolValue:
    """A symbol of an enum; `default` in place of those in `gone`."""

    of: OldValue
    gone: tuple[str, ...]
    default: str


@dataclass(frozen=True, slots=True)
class StructValue:
    """A struct of new members; null where `of` is null."""

    of: OldValue
    members: tuple[tuple[str, OldValue], ...]
    type: StructColumn


@dataclass(frozen=True, slots=True)
class ListValue:
    """A list with each item changed."""

    of: OldValue
    item: OldValue
    type: ListColumn


@dataclass(frozen=True, slots=True)
class MapValue:
    """A map with each value changed."""

    of: OldValue
    item: OldValue
    type: MapColumn


@dataclass(frozen=True, slots=True)
class FirstValue:
    """The first of two values that is not null."""

    first: OldValue
    second: OldValue


OldValue = (
    StoredValue
    | ItemValue
    | MemberValue
    | ConstantValue
    | CastValue
    | SymbolValue
    | StructValue
    | ListValue
    | MapValue
    | FirstValue
)
